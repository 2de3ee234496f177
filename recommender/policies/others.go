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

type others struct {
	workloads []target.Workload
	kept      map[target.Key]bool // may exist, their VPAs stay unchanged
	problems  map[string][]string // by policy, sorted
}

type vpasOf map[target.Key]*vpav1.VerticalPodAutoscaler

// findUnlisted finds workloads of such kinds that policies name or that have a generated VPA.
func (k *Keeper) others(ctx context.Context, set *fleet.Set, person, made vpasOf) (others, error) {
	o := others{kept: map[target.Key]bool{}, problems: map[string][]string{}}
	named := o.named(set, k.Kinds)
	looked, err := k.owning(named)
	if err != nil {
		return o, err
	}
	for key := range made {
		looked[key] = looked[key] || !fleet.Listed(key.Group, key.Kind)
	}
	for key := range person {
		looked[key] = looked[key] || named[anywhere(key)]
	}
	within, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	for _, key := range slices.SortedFunc(maps.Keys(looked), target.CompareKeys) {
		if !looked[key] {
			continue
		}
		// Users can create VPAs that look generated. Unnamed workloads are read in the background,
		// and named ones too if others take long.
		read := k.Workloads.Known
		if named[anywhere(key)] && within.Err() == nil {
			read = func(key target.Key) (target.Workload, error) { return k.Workloads.Read(ctx, key) }
		}
		w, err := read(key)
		if err == nil {
			o.workloads = append(o.workloads, w)
			continue
		}
		o.kept[key] = !errors.Is(err, target.ErrNoWorkload)
		if named[anywhere(key)] && !errors.Is(err, target.ErrNotRead) {
			o.complain(set.For(k.Policies.Describe(target.Workload{Key: key})).Policy, err.Error())
		}
	}
	for _, problems := range o.problems {
		slices.Sort(problems)
	}
	return o, nil
}

// namedWorkloads returns the workloads that policies name, without a namespace and without unusable
// kinds.
func (o *others) named(set *fleet.Set, kinds *client.Scales) map[target.Key]bool {
	named, problems := map[target.Key]bool{}, map[schema.GroupKind]error{}
	for p, m := range set.Named() {
		kind := schema.GroupKind{Group: m.Group, Kind: m.Kind}
		problem, known := problems[kind]
		if !known {
			problem = kinds.Check(kind)
			problems[kind] = problem
		}
		if problem != nil {
			o.complain(p, fmt.Sprintf("spec.workloads: %s cannot be selected: %v: name a kind that is installed and has a scale subresource", kind, problem))
			continue
		}
		named[target.NewKey("", m.Group+"/", m.Kind, m.Name)] = true
	}
	return named
}

func anywhere(key target.Key) target.Key {
	key.Namespace = ""
	return key
}

func (o *others) complain(p *fleet.Policy, problem string) {
	if p != nil && !slices.Contains(o.problems[p.Name], problem) {
		o.problems[p.Name] = append(o.problems[p.Name], problem)
	}
}

// findOwners returns the workloads with these names that own pods, directly or indirectly.
func (k *Keeper) owning(named map[target.Key]bool) (map[target.Key]bool, error) {
	found := map[target.Key]bool{}
	if len(named) == 0 {
		return found, nil
	}
	seen := map[target.Key]bool{} // most own several pods
	err := client.EachPod(k.Pods, func(pod *corev1.Pod) {
		for owner := range k.Workloads.Above(pod) {
			if seen[owner] {
				return
			}
			seen[owner] = true
			if named[anywhere(owner)] && k.Namespaces.Serves(pod.Namespace) {
				found[owner] = true
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list cached pods: %w", err)
	}
	return found, nil
}
