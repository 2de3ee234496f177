package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// Policies may name workloads of kinds without an informer. They are found as owners of pods, and
// through their generated VPAs, which stay while there are no pods.

type unlistedWorkloads struct {
	workloads []target.Workload
	unknown   map[target.Key]bool // may exist, their VPAs stay unchanged
	problems  map[string][]string // by policy, sorted
}

type vpasByTarget map[target.Key]*vpav1.VerticalPodAutoscaler

func (k *Keeper) findUnlisted(ctx context.Context, set *fleet.Set, person, made vpasByTarget) (unlistedWorkloads, error) {
	o := unlistedWorkloads{unknown: map[target.Key]bool{}, problems: map[string][]string{}}
	named := o.namedWorkloads(set, k.Kinds)
	candidates, err := k.findOwners(named)
	if err != nil {
		return o, err
	}
	for key := range made {
		candidates[key] = candidates[key] || !fleet.Listed(key.Group, key.Kind)
	}
	for key := range person {
		candidates[key] = candidates[key] || named[withoutNamespace(key)]
	}
	within, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	for _, key := range slices.SortedFunc(maps.Keys(candidates), target.CompareKeys) {
		if !candidates[key] {
			continue
		}
		// Users can create VPAs that look generated. Unnamed workloads are read in the background,
		// and named ones too if others take long.
		read := k.Workloads.ReadCached
		if named[withoutNamespace(key)] && within.Err() == nil {
			read = func(key target.Key) (target.Workload, error) { return k.Workloads.Read(ctx, key) }
		}
		w, err := read(key)
		if err == nil {
			o.workloads = append(o.workloads, w)
			continue
		}
		o.unknown[key] = !errors.Is(err, target.ErrNoWorkload)
		if named[withoutNamespace(key)] && !errors.Is(err, target.ErrNotRead) {
			o.addProblem(set.Decide(k.Policies.FleetWorkload(target.Workload{Key: key})).Policy, err.Error())
		}
	}
	for _, problems := range o.problems {
		slices.Sort(problems)
	}
	return o, nil
}

// namedWorkloads returns keys without a namespace, and omits unusable kinds.
func (o *unlistedWorkloads) namedWorkloads(set *fleet.Set, kinds *client.Scales) map[target.Key]bool {
	named, problems := map[target.Key]bool{}, map[schema.GroupKind]error{}
	for p, m := range set.NamedMatches() {
		kind := schema.GroupKind{Group: m.Group, Kind: m.Kind}
		problem, known := problems[kind]
		if !known {
			problem = kinds.Check(kind)
			problems[kind] = problem
		}
		if problem != nil {
			o.addProblem(p, fmt.Sprintf("spec.workloads: %s cannot be selected: %v: name a kind that is installed and has a scale subresource", kind, problem))
			continue
		}
		named[target.NewKey("", m.Group+"/", m.Kind, m.Name)] = true
	}
	return named
}

func withoutNamespace(key target.Key) target.Key {
	key.Namespace = ""
	return key
}

func (o *unlistedWorkloads) addProblem(p *fleet.Policy, problem string) {
	if p != nil && !slices.Contains(o.problems[p.Name], problem) {
		o.problems[p.Name] = append(o.problems[p.Name], problem)
	}
}

func (k *Keeper) findOwners(named map[target.Key]bool) (map[target.Key]bool, error) {
	found := map[target.Key]bool{}
	if len(named) == 0 {
		return found, nil
	}
	seen := map[target.Key]bool{} // most own several pods
	err := client.EachPod(k.Pods, func(pod *corev1.Pod) {
		for owner := range k.Workloads.PodOwnerChain(pod) {
			if seen[owner] {
				return
			}
			seen[owner] = true
			if named[withoutNamespace(owner)] && k.Namespaces.Includes(pod.Namespace) {
				found[owner] = true
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list cached pods: %w", err)
	}
	return found, nil
}
