package updater

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/rollout"
)

func inNamespace(namespace string, objects []runtime.Object) []runtime.Object {
	for _, o := range objects {
		if m, err := meta.Accessor(o); err == nil {
			m.SetNamespace(namespace)
		}
	}
	return objects
}

// changedIn returns the number of lowered pods in a namespace.
func (s *fuseCluster) changedIn(namespace string) (count int) {
	all, err := s.kube.CoreV1().Pods(namespace).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	for i := range all.Items {
		if convert.HasNotedChange(&all.Items[i]) {
			count++
		}
	}
	return count
}

func selectNamespaces(names ...string) func(*loadlinev1alpha1.SizingPolicySpec) {
	return func(p *loadlinev1alpha1.SizingPolicySpec) { p.Namespaces.Names = names }
}

func newFuseClusterIn(t *testing.T, policy *loadlinev1alpha1.SizingPolicy, workloads map[string]int, more ...runtime.Object) *fuseCluster {
	t.Helper()
	objects := append([]runtime.Object{policy, healthy("n1")}, more...)
	for namespace, n := range workloads {
		for i := range n {
			objects = append(objects, inNamespace(namespace, renamedDeployment(fmt.Sprintf("app-%04d", i)))...)
		}
	}
	config := Default()
	config.Disruption.MinReplicas = 1
	s := &fuseCluster{rolling: roll(t, config, objects...), changed: map[string]bool{}, minute: -1, harmless: true}
	s.events.Events = make(chan string, 100000)
	return s
}

func TestStartRate_FailedChangesUseNoStart(t *testing.T) {
	failing := func(name string) bool {
		var i int
		_, err := fmt.Sscanf(name[strings.Index(name, "app-"):], "app-%d", &i)
		return err == nil && i < 15
	}
	resource := loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords").GroupResource()
	pods := corev1.Resource("pods")
	for _, tc := range []struct {
		name  string
		fails func(*fuseCluster)
	}{
		{"records that cannot be written", func(s *fuseCluster) {
			s.vpa.PrependReactor("create", "sizingrecords", func(a ktesting.Action) (bool, runtime.Object, error) {
				record, err := meta.Accessor(a.(ktesting.CreateAction).GetObject())
				require.NoError(s.t, err)
				if !strings.Contains(record.GetName(), "app-") || !failing(record.GetName()) {
					return false, nil, nil
				}
				return true, nil, apierrors.NewForbidden(resource, record.GetName(), errors.New("exceeded quota"))
			})
		}},
		{"resizes that are refused", func(s *fuseCluster) {
			s.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				patch := a.(ktesting.PatchAction)
				if patch.GetSubresource() != "resize" || !failing(patch.GetName()) {
					return false, nil, nil
				}
				return true, nil, apierrors.NewForbidden(pods, patch.GetName(), errors.New("denied by a policy"))
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFuseCluster(t, 30, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
			s.harmless = true
			tc.fails(s)
			s.runOnce(noon)
			lowered := 0
			for _, p := range s.pods() {
				if p.Spec.Containers[0].Resources.Requests.Cpu().String() == "50m" {
					lowered++
				}
			}
			require.Equal(t, 10, lowered)
		})
	}
}

// A resize without an answer may have been applied.
func TestStartRate_UnconfirmedChangesUseStart(t *testing.T) {
	s := newFuseCluster(t, 30, sizingPolicy(loadlinev1alpha1.RolloutModeAuto))
	s.kube.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "resize" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewTimeoutError("no answer", 1)
	})
	s.runOnce(noon)
	require.Len(t, s.noted(), 10)
}

func TestStartRate_NamespacesShareStarts(t *testing.T) {
	policy := sizingPolicy(loadlinev1alpha1.RolloutModeAuto, selectNamespaces("attacker", "shop"))
	s := newFuseClusterIn(t, policy, map[string]int{"attacker": 40, "shop": 20})
	s.runOnce(noon)
	require.Equal(t, 5, s.changedIn("attacker"))
	require.Equal(t, 5, s.changedIn("shop"))

	// The attacker deletes and recreates its workloads. Their starts must not precede those of
	// others.
	records := s.vpa.LoadlineV1alpha1().SizingRecords("attacker")
	all, err := records.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range all.Items {
		require.NoError(t, records.Delete(t.Context(), all.Items[i].Name, metav1.DeleteOptions{}))
	}
	s.runOnce(noon.Add(61 * time.Minute))
	require.GreaterOrEqual(t, s.changedIn("shop"), 9)
}

// revertedRecord returns the record of a renamedDeployment with a reverted last round.
func revertedRecord(namespace, name, hash string, ago time.Duration) *loadlinev1alpha1.SizingRecord {
	at := noon.Add(-ago)
	r := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.GeneratedVPAName("Deployment", "apps", name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: types.UID(name + "-uid-web")}}}}
	r.Status = convert.RecordStatus(rollout.State{Mode: fleet.Auto, Hash: hash, Started: at, Rounds: []rollout.Round{
		{Time: at, Last: at, Pods: 1, Outcome: rollout.Reverted, Reason: rollout.Restart, Ended: at}}})
	return r
}

func TestFuse_HoldsOnlyNamespaceOfReverts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reverts map[string]int
		changed []string // namespaces with changed pods
		reason  string   // of the condition, empty: none
	}{
		{"in one namespace", map[string]int{"attacker": 6}, []string{"shop"}, "TooManyRevertsInNamespaces"},
		{"in two namespaces", map[string]int{"attacker": 3, "shop": 3}, nil, "TooManyReverts"},
		{"too few", map[string]int{"attacker": 3}, []string{"attacker", "shop"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := sizingPolicy(loadlinev1alpha1.RolloutModeAuto, selectNamespaces("attacker", "shop"))
			var records []runtime.Object
			for namespace, n := range tc.reverts {
				for i := range n {
					records = append(records, revertedRecord(namespace, fmt.Sprintf("app-%04d", i), "", 10*time.Minute))
				}
			}
			s := newFuseClusterIn(t, policy, map[string]int{"attacker": 12, "shop": 12}, records...)
			s.runOnce(noon)
			var changed []string
			for _, namespace := range []string{"attacker", "shop"} {
				if s.changedIn(namespace) > 0 {
					changed = append(changed, namespace)
				}
			}
			require.Equal(t, tc.changed, changed)
			if tc.reason == "" {
				require.Nil(t, s.condition())
				return
			}
			c := s.condition()
			require.Equal(t, tc.reason, c.Reason)
			require.EqualValues(t, 1, s.value("loadline_policy_fuse_tripped", "policy", "fleet"))
			named := slices.ContainsFunc(s.drainEvents(), func(line string) bool {
				return strings.HasPrefix(line, "Warning FuseTripped ") && strings.Contains(line, "attacker/deployment-app-") == (len(tc.changed) > 0)
			})
			require.True(t, named)
			require.Equal(t, len(tc.changed) > 0, strings.HasPrefix(c.Message, "namespaces attacker: "))
			if len(tc.changed) == 0 {
				return
			}
			for i := range 12 { // the tenant deletes the records
				_ = s.vpa.LoadlineV1alpha1().SizingRecords("attacker").Delete(t.Context(), fleet.GeneratedVPAName("Deployment", "apps", fmt.Sprintf("app-%04d", i)), metav1.DeleteOptions{})
			}
			s.runOnce(noon.Add(2 * time.Hour))
			require.Zero(t, s.changedIn("attacker"))
			require.Equal(t, c.Message, s.condition().Message)
		})
	}
}

func TestStartRate_CountsRecordsWithoutStartedAt(t *testing.T) {
	var records []runtime.Object
	for i := range 20 {
		r := revertedRecord("shop", fmt.Sprintf("app-%04d", i), "", 48*time.Hour)
		r.Status.PolicyHash, r.Status.StartedAt = convert.RolloutSettings(sizingPolicy(loadlinev1alpha1.RolloutModeAuto)).Hash, nil
		r.Status.Rounds[0].EndedAt, r.Status.Rounds[0].Outcome = nil, loadlinev1alpha1.RoundSuccess
		records = append(records, r)
	}
	s := newFuseClusterIn(t, sizingPolicy(loadlinev1alpha1.RolloutModeAuto), map[string]int{"shop": 40}, records...)
	s.runOnce(noon)
	require.Equal(t, 30, s.changedIn("shop"), "20 go on and 10 start")
}

func TestRecord_NamespacesShareWrites(t *testing.T) {
	workloads := map[string]int{"attacker": 105, "shop": 3, "web": 1}
	var records []runtime.Object
	for namespace, n := range workloads {
		for i := range n {
			records = append(records, revertedRecord(namespace, fmt.Sprintf("app-%04d", i), "", 10*time.Minute))
		}
	}
	s := newFuseClusterIn(t, sizingPolicy(loadlinev1alpha1.RolloutModeAuto, selectNamespaces("attacker", "shop", "web")), workloads, records...)
	written := map[string]int{}
	s.vpa.PrependReactor("update", "sizingrecords", func(a ktesting.Action) (bool, runtime.Object, error) {
		written[a.GetNamespace()]++
		return false, nil, nil
	})
	s.runOnce(noon)
	require.Equal(t, map[string]int{"attacker": 96, "shop": 3, "web": 1}, written)
	clear(written)
	s.runOnce(noon.Add(time.Minute))
	require.Equal(t, map[string]int{"attacker": 9}, written)
}
