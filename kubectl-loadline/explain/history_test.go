package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
)

func TestHistory_OutputMatchesDocs(t *testing.T) {
	s := plugintest.NewShop()
	round := func(minutes int, outcome loadlinev1alpha1.RoundOutcome, reason string, from, to string) loadlinev1alpha1.Round {
		return loadlinev1alpha1.Round{Time: metav1.NewTime(plugintest.Before(minutes)), Pods: 3, Outcome: outcome, Reason: reason,
			From: []loadlinev1alpha1.ContainerSizes{{Name: "a", Requests: loadlinev1alpha1.Sizes(plugintest.Resources(from, "200Mi"))}}, To: []loadlinev1alpha1.ContainerSizes{{Name: "a", Requests: loadlinev1alpha1.Sizes{"cpu": plugintest.Resources(to, "1")["cpu"]}}}}
	}
	s.Record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", OwnerReferences: plugintest.OwnedBy("Deployment", "web")}}
	s.Record.Status.Rounds = []loadlinev1alpha1.Round{round(10, "", "", "1400m", "1200m"), round(300, loadlinev1alpha1.RoundReverted, "OOMKilled", "2", "1400m")}
	s.More = append(s.More, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Reason: "InPlaceResizedByVPA", Message: "Pod was resized in place", Source: corev1.EventSource{Component: "vpa-updater"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web-1-b"}, LastTimestamp: metav1.NewTime(plugintest.Before(9))},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "f"}, Reason: "Started", Source: corev1.EventSource{Component: "kubelet"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web-1-b"}})
	kube, own := s.Clients()
	a, err := historyOf(t.Context(), own, inventory.Request{Namespace: "shop", Kube: kube})
	require.NoError(t, err)
	require.Len(t, a.Entries, 3)
	require.Equal(t, historyEntry{plugintest.Before(10).UTC(), "shop", "Deployment web", "pods changed: 3, a cpu 1400m to 1200m", "in progress", ""}, withUTC(a.Entries[1]))
	plugintest.InTheDocs(t, "history -n shop", plugintest.Printed(t, a, "table"))
	a, err = historyOf(t.Context(), own, inventory.Request{Namespace: "shop", Name: "web-1-b", Kube: kube})
	require.NoError(t, err)
	require.Len(t, a.Entries, 1)
}

func TestHistory_DescribesDeferredReverts(t *testing.T) {
	s := plugintest.NewShop()
	s.Record = &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", OwnerReferences: plugintest.OwnedBy("Deployment", "web")},
		Status: loadlinev1alpha1.SizingRecordStatus{Rounds: []loadlinev1alpha1.Round{
			{Time: metav1.NewTime(plugintest.Before(10)), Pods: 1, Outcome: loadlinev1alpha1.RoundDeferred, Reason: "OOMKilled"},
		}},
	}
	kube, own := s.Clients()
	a, err := historyOf(t.Context(), own, inventory.Request{Namespace: "shop", Kube: kube})
	require.NoError(t, err)
	require.Contains(t, plugintest.Printed(t, a, "table"), "pods changed: 1, the node did not apply the revert in time  Deferred  OOMKilled")
}

func withUTC(d historyEntry) historyEntry {
	d.Time = d.Time.UTC().Truncate(time.Second)
	return d
}
