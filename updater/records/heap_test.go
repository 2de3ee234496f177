package records

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/testkit"
)

// rolledOut returns the record of a workload after twenty rounds of changes of two containers, as
// sent by the API server.
func rolledOut(tb testing.TB, name string) *loadlinev1alpha1.SizingRecord {
	tb.Helper()
	sizes := func(n int) (all []policy.Container) {
		for i, name := range []string{"app", "istio-proxy"} {
			amounts := resources.List{}.With(resources.CPU, resources.Amount(100+10*i+n)).With(resources.Memory, resources.Amount(100+n)<<20)
			all = append(all, policy.Container{Name: name, Requests: amounts, Limits: amounts})
		}
		return all
	}
	s := rollout.State{Mode: fleet.Auto, Hash: "0123456789abcdef", CooldownUntil: noon, ProvenResources: sizes(0)}
	for n := range 20 {
		at := noon.AddDate(0, 0, -n)
		s.Rounds = append(s.Rounds, rollout.Round{Time: at, Last: at.Add(time.Hour), Pods: 5, Outcome: rollout.Success, From: sizes(n + 1), To: sizes(n)})
	}
	made := record("7", 0, "uid-"+name)
	made.Name, made.Status = "deployment-"+name, convert.RecordStatus(s)
	made.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "updater"}}
	text, err := json.Marshal(made)
	require.NoError(tb, err)
	var sent loadlinev1alpha1.SizingRecord
	require.NoError(tb, json.Unmarshal(text, &sent))
	return &sent
}

// cached returns the cache size in bytes of a record with twenty rounds, including its keys.
func cached(tb testing.TB, count int) (bytes int64) {
	tb.Helper()
	objects := make([]runtime.Object, count)
	for i := range objects {
		objects[i] = rolledOut(tb, fmt.Sprint("web-", i))
	}
	client := fake.NewSimpleClientset(objects...)
	before := testkit.LiveHeap()
	factory := externalversions.NewSharedInformerFactory(client, 0)
	s, err := Watch(client, factory.Loadline().V1alpha1().SizingRecords(), nil, false)
	require.NoError(tb, err)
	factory.Start(tb.Context().Done())
	require.Eventually(tb, s.synced, time.Minute, time.Millisecond)
	bytes = (testkit.LiveHeap() - before) / int64(count)
	require.Len(tb, s.cached.ListKeys(), count)
	return bytes
}

func BenchmarkCachedRecord(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(cached(b, 10_000)), "B/record")
		b.ReportMetric(0, "ns/op")
	}
}

// Each workload of a large cluster has a record. Without compaction, 10,000 would take 1.1 GiB.
func TestStore_BoundsCachedRecordSize(t *testing.T) {
	require.Less(t, cached(t, 500), int64(12<<10))
}

// A write updates the whole object.
func TestStoreUpdate_KeepsAllFields(t *testing.T) {
	before := rolledOut(t, "web")
	before.ManagedFields = nil
	before.Labels, before.Annotations, before.Finalizers = map[string]string{"team": "shop"}, map[string]string{"note": "seen"}, []string{"example.com/audit"}
	s, client := newStore(t, false, before.DeepCopy())
	_, err := s.Update(t.Context(), web, addPod)
	require.NoError(t, err)
	before.Status.Rounds[0].Pods++
	before.Status.StartedAt = &before.Status.Rounds[len(before.Status.Rounds)-1].Time // records of older versions have none
	after := getRecord(t, client)
	after.OwnerReferences = before.OwnerReferences // see TestStoreUpdate_AdoptsRecordOfWorkload
	require.True(t, apiequality.Semantic.DeepEqual(before, after), "%v, was %v", after, before)
}
