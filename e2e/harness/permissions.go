package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PermissionUse compares the requests of the programs with the permissions in deploy/.
type PermissionUse struct {
	Requests  int      // by the programs, in the audit log
	Granted   int      // permissions: account, verb, resource
	Forbidden []string // requests rejected for a missing permission
	Unused    []string // permissions without a request
}

// permission is one verb on one resource for one service account.
type permission struct{ account, verb, group, resource string }

func (p permission) String() string {
	resource := p.resource
	if p.group != "" {
		resource += "." + p.group
	}
	return fmt.Sprintf("%s: %s %s", p.account, p.verb, resource)
}

// Permissions reads the audit log of the cluster so far, for the programs of deploy/.
func (c *Cluster) Permissions() (PermissionUse, error) { return c.PermissionsOf(programs) }

// PermissionsOf reads the audit log of the cluster so far, for the accounts.
func (c *Cluster) PermissionsOf(accounts Accounts) (PermissionUse, error) {
	granted, err := c.granted(context.Background(), accounts)
	if err != nil {
		return PermissionUse{}, err
	}
	use := PermissionUse{Granted: len(granted)}
	used := map[permission]bool{}
	if err := c.RequestsOf(accounts, func(r Request) {
		use.Requests++
		if r.Forbidden {
			use.Forbidden = append(use.Forbidden, fmt.Sprintf("%s: %s %s", r.Account, r.Verb, r.URI))
		}
		used[permission{r.Account, r.Verb, r.Group, r.Resource}] = true
	}); err != nil {
		return use, err
	}
	for p := range granted {
		if !covered(p, used) {
			use.Unused = append(use.Unused, p.String())
		}
	}
	slices.Sort(use.Unused)
	slices.Sort(use.Forbidden)
	use.Forbidden = slices.Compact(use.Forbidden)
	return use, nil
}

// covered reports whether a request needed the permission, which may contain wildcards. A watch
// counts for list as well: informers stream their first list through a watch if the API server
// supports it, and otherwise fall back to list.
func covered(p permission, used map[permission]bool) bool {
	for u := range used {
		verb := u.verb == p.verb || u.verb == "watch" && p.verb == "list"
		if u.account == p.account && verb && matches(p.group, u.group) && matchesResource(p.resource, u.resource) {
			return true
		}
	}
	return false
}

func matches(granted, asked string) bool { return granted == "*" || granted == asked }

func matchesResource(granted, asked string) bool {
	if suffix, ok := strings.CutPrefix(granted, "*/"); ok {
		return strings.HasSuffix(asked, "/"+suffix)
	}
	return matches(granted, asked)
}

// granted returns the permissions of accounts from bindings in the cluster and in their namespace.
func (c *Cluster) granted(ctx context.Context, accounts Accounts) (map[permission]bool, error) {
	all := map[permission]bool{}
	add := func(subjects []rbacv1.Subject, rules []rbacv1.PolicyRule) {
		for _, subject := range subjects {
			if subject.Kind != rbacv1.ServiceAccountKind || subject.Namespace != accounts.Namespace || !strings.HasPrefix(subject.Name, accounts.Prefix) {
				continue
			}
			for _, rule := range rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							all[permission{subject.Name, verb, group, resource}] = true
						}
					}
				}
			}
		}
	}
	clusterRoles, err := c.Kube.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, role := range clusterRoles.Items {
		rules[role.Name] = role.Rules
	}
	clusterBindings, err := c.Kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, binding := range clusterBindings.Items {
		add(binding.Subjects, rules[binding.RoleRef.Name])
	}
	roles, err := c.Kube.RbacV1().Roles(accounts.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	rules = map[string][]rbacv1.PolicyRule{}
	for _, role := range roles.Items {
		rules[role.Name] = role.Rules
	}
	bindings, err := c.Kube.RbacV1().RoleBindings(accounts.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, binding := range bindings.Items {
		add(binding.Subjects, rules[binding.RoleRef.Name])
	}
	return all, nil
}
