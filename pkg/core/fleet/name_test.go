package fleet

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestGeneratedVPAName(t *testing.T) {
	long := strings.Repeat("a", 178)
	for name, c := range map[string]struct{ kind, group, name, want string }{
		"Deployment":              {"Deployment", "apps", "web", "deployment-web"},
		"CronJob":                 {"CronJob", "batch", "nightly", "cronjob-nightly"},
		"an old group":            {"Deployment", "extensions", "web", "deployment-web"},
		"no group":                {"StatefulSet", "", "web.db", "statefulset-web.db"},
		"a custom kind":           {"Rollout", "argoproj.io", "web", `rollout-web-[0-9a-f]{10}`},
		"a kind of another group": {"Deployment", "example.com", "web", `deployment-web-[0-9a-f]{10}`},
		"as long as it may be":    {"Deployment", "apps", long, "deployment-" + long},
		"one longer":              {"Deployment", "apps", long + "a", "deployment-" + long[:167] + `-[0-9a-f]{10}`},
		"cut at a dash":           {"Deployment", "apps", long[:166] + "--" + long, "deployment-" + long[:166] + `-[0-9a-f]{10}`},
		"no name at all":          {"", "example.com", "", `[0-9a-f]{10}`},
		"dots of a custom kind":   {"Rollout", "argoproj.io", "web.db", `rollout-web-db-[0-9a-f]{10}`},
		"what is no name":         {"Deployment", "apps", "Wéb", `deployment---b-[0-9a-f]{10}`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Regexp(t, "^"+c.want+"$", GeneratedVPAName(c.kind, c.group, c.name))
		})
	}
}

func TestGeneratedVPAName_IgnoresGroupOfBuiltInKinds(t *testing.T) {
	long := strings.Repeat("a", 240)
	require.Equal(t, GeneratedVPAName("Deployment", "apps", long), GeneratedVPAName("Deployment", "extensions", long))
}

// A name that changes between versions would recreate every generated VPA.
func TestGeneratedVPAName_HashIsStable(t *testing.T) {
	require.Equal(t, "rollout-web-5b4c3540af", GeneratedVPAName("Rollout", "argoproj.io", "web"))
}

var subdomainName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func requireName(t require.TestingT, name string) {
	require.Regexp(t, subdomainName, name)
	require.LessOrEqual(t, len(name)+len("-")+63, 253, "no room for a container in the name of a checkpoint")
}

type identity struct{ kind, group, name string }

func TestGeneratedVPAName_IsUnique(t *testing.T) {
	words := rapid.SampledFrom([]string{"web", "web-db", "web.db", "db", "a", "a-a", "deployment-web", "web--db", strings.Repeat("x", 200), strings.Repeat("x", 200) + "y"})
	workload := rapid.Custom(func(t *rapid.T) identity {
		i := identity{
			rapid.SampledFrom([]string{"Deployment", "DeploymentA", "StatefulSet", "CronJob", "Job", "Rollout", "ROLLOUT"}).Draw(t, "kind"),
			rapid.SampledFrom([]string{"apps", "example.com", "example.org"}).Draw(t, "group"), words.Draw(t, "name"),
		}
		if rapid.Bool().Draw(t, "longer") {
			i.name += "-" + words.Draw(t, "end")
		}
		return i
	})
	rapid.Check(t, func(t *rapid.T) {
		taken := map[string]identity{}
		for _, w := range rapid.SliceOfN(workload, 2, 20).Draw(t, "workloads") {
			name := GeneratedVPAName(w.kind, w.group, w.name)
			requireName(t, name)
			require.Equal(t, name, GeneratedVPAName(w.kind, w.group, w.name))
			if other, there := taken[name]; there {
				require.Equal(t, other, w, name)
			}
			taken[name] = w
		}
	})
}

func TestGeneratedVPAName_IsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9.A-Z-]{0,260}`))
		kind := rapid.OneOf(text, rapid.Just("Deployment")).Draw(t, "kind")
		requireName(t, GeneratedVPAName(kind, rapid.OneOf(text, rapid.Just("apps")).Draw(t, "group"), text.Draw(t, "name")))
	})
}
