package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/target"
)

func workloadsNamed(keys ...target.Key) (all []*managed) {
	for _, key := range keys {
		all = append(all, &managed{key: key})
	}
	return all
}

var (
	webKey   = target.Key{Namespace: "shop", Kind: "Deployment", Name: "web"}
	frontKey = target.Key{Namespace: "shop", Kind: "Deployment", Name: "front"}
	setKey   = target.Key{Namespace: "data", Kind: "StatefulSet", Name: "db"}
	ownKey   = target.Key{Namespace: "shop", Group: "argoproj.io", Kind: "Rollout", Name: "api"}
)

func TestVPAsOfModeOffAreWrittenForWorkloads(t *testing.T) {
	c := objects(t, workloadsNamed(webKey, setKey, ownKey), wanted{All: true})
	require.Equal(t, []string{"Rollout.argoproj.io api in namespace shop is left out: the API version of its kind is not known here"}, c.problems)
	var out, errOut bytes.Buffer
	require.NoError(t, c.print(&out, &errOut))
	require.Contains(t, errOut.String(), "! Rollout.argoproj.io api")
	inTheDocs(t, "create -A", out.String())
	parts := strings.Split(out.String(), "---\n")
	require.Len(t, parts, 2)
	var read vpav1.VerticalPodAutoscaler
	require.NoError(t, yaml.UnmarshalStrict([]byte(parts[1]), &read))
	require.Equal(t, vpav1.UpdateModeOff, convert.Mode(&read))
	require.Equal(t, setKey, target.RefKey(read.Namespace, read.Spec.TargetRef))
}

func TestOnePolicyIsWrittenForManyWorkloads(t *testing.T) {
	c := objects(t, workloadsNamed(frontKey, webKey, setKey), wanted{Policy: "all", All: true})
	require.Empty(t, c.vpas)
	require.Equal(t, []string{"*"}, c.policy.Spec.Namespaces.Names)
	require.Equal(t, []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"}}, c.policy.Spec.Workloads)
	problems, _ := convert.CheckPolicy(c.policy)
	require.Empty(t, problems)
	var out, errOut bytes.Buffer
	require.NoError(t, c.print(&out, &errOut))
	inTheDocs(t, "create -A --policy=all", out.String())
	named := objects(t, workloadsNamed(frontKey, webKey), wanted{Policy: "two", Named: true})
	require.Equal(t, []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment", Name: "front"}, {APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}, named.policy.Spec.Workloads)
	out.Reset()
	require.NoError(t, objects(t, nil, wanted{Policy: "all"}).print(&out, &errOut))
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "no workload without a VPA was found")
}

func TestObjectsAreCreatedOnce(t *testing.T) {
	own := fake.NewSimpleClientset()
	c := objects(t, workloadsNamed(webKey), wanted{})
	for _, want := range []string{"VPA shop/deployment-web: created\n", "VPA shop/deployment-web: exists already\n"} {
		var out bytes.Buffer
		require.NoError(t, c.apply(t.Context(), own, &out))
		require.Equal(t, want, out.String())
	}
	var out bytes.Buffer
	require.NoError(t, objects(t, workloadsNamed(webKey), wanted{Policy: "p"}).apply(t.Context(), own, &out))
	require.Equal(t, "SizingPolicy p: created\n", out.String())
	own.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	require.ErrorContains(t, c.apply(t.Context(), own, &out), "create VPA shop/deployment-web: forbidden")
}

func exportedAs(t *testing.T, form string, all sizeList) string {
	t.Helper()
	var out bytes.Buffer
	problems, err := sizesAs(&out, form, all)
	require.NoError(t, err)
	require.Empty(t, problems)
	return out.String()
}

func TestSizesAreExported(t *testing.T) {
	all := shopSizes(t, sizesScope{Names: []string{"deployment/web"}}, "vpa").sizes
	inTheDocs(t, "export -n shop deployment/web", exportedAs(t, "patch", all))
	inTheDocs(t, "export -n shop -o kustomize deployment/web", exportedAs(t, "kustomize", all))
	inTheDocs(t, "export -n shop -o helm deployment/web", exportedAs(t, "helm", all))
	cron := &managed{key: target.Key{Namespace: "shop", Kind: "CronJob", Name: "report"}, template: []string{"a"}}
	sized := sizeList{{Container: "a", Target: sizes("1", "1Gi"), of: cron}}
	require.Contains(t, exportedAs(t, "patch", sized), "  jobTemplate:\n    spec:\n      template:\n        spec:\n          containers:\n          - name: a\n")
	require.Contains(t, exportedAs(t, "patch", sized), "apiVersion: batch/v1\n")
	var out bytes.Buffer
	problems, err := sizesAs(&out, "helm", sizeList{{Container: "a", Target: sizes("1", "1Gi"), of: &managed{key: ownKey, template: []string{"a"}}}})
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Empty(t, out.String(), "there is nothing to write")
}

func TestHistoryIsAsTheDocsShow(t *testing.T) {
	s := newShop()
	round := func(minutes int, outcome loadlinev1alpha1.RoundOutcome, reason string, from, to string) loadlinev1alpha1.Round {
		return loadlinev1alpha1.Round{Time: metav1.NewTime(before(minutes)), Pods: 3, Outcome: outcome, Reason: reason,
			From: []loadlinev1alpha1.ContainerSizes{{Name: "a", Requests: loadlinev1alpha1.Sizes(sizes(from, "200Mi"))}}, To: []loadlinev1alpha1.ContainerSizes{{Name: "a", Requests: loadlinev1alpha1.Sizes{"cpu": sizes(to, "1")["cpu"]}}}}
	}
	s.record = &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", OwnerReferences: ownedBy("Deployment", "web")}}
	s.record.Status.Rounds = []loadlinev1alpha1.Round{round(10, "", "", "1400m", "1200m"), round(300, loadlinev1alpha1.RoundReverted, "OOMKilled", "2", "1400m")}
	s.more = append(s.more, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Reason: "InPlaceResizedByVPA", Message: "Pod was resized in place", Source: corev1.EventSource{Component: "vpa-updater"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web-1-b"}, LastTimestamp: metav1.NewTime(before(9))},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "f"}, Reason: "Started", Source: corev1.EventSource{Component: "kubelet"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web-1-b"}})
	kube, own := s.clients()
	a, err := historyOf(t.Context(), own, question{Namespace: "shop", Kube: kube})
	require.NoError(t, err)
	require.Len(t, a.Deeds, 3)
	require.Equal(t, deed{before(10).UTC(), "shop", "Deployment web", "pods changed: 3, a cpu 1400m to 1200m", "goes on", ""}, withUTC(a.Deeds[1]))
	inTheDocs(t, "history -n shop", printed(t, a, "table"))
	a, err = historyOf(t.Context(), own, question{Namespace: "shop", Name: "web-1-b", Kube: kube})
	require.NoError(t, err)
	require.Len(t, a.Deeds, 1)
}

func TestHistory_DescribesDeferredReverts(t *testing.T) {
	s := newShop()
	s.record = &loadlinev1alpha1.SizingRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", OwnerReferences: ownedBy("Deployment", "web")},
		Status: loadlinev1alpha1.SizingRecordStatus{Rounds: []loadlinev1alpha1.Round{
			{Time: metav1.NewTime(before(10)), Pods: 1, Outcome: loadlinev1alpha1.RoundDeferred, Reason: "OOMKilled"},
		}},
	}
	kube, own := s.clients()
	a, err := historyOf(t.Context(), own, question{Namespace: "shop", Kube: kube})
	require.NoError(t, err)
	require.Contains(t, printed(t, a, "table"), "pods changed: 1, the node did not apply the revert in time  Deferred  OOMKilled")
}

func withUTC(d deed) deed {
	d.Time = d.Time.UTC().Truncate(time.Second)
	return d
}

func TestCommandLinesOfTheRest(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"export", "-o", "json"}, 2, "--output=json: must be patch, kustomize, helm"},
		{[]string{"export", "--help"}, 0, "Usage: kubectl loadline export [flags] [[KIND/]NAME...]"},
		{[]string{"create", "-l", "a=b=c"}, 2, "--selector=a=b=c"},
		{[]string{"create", "--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline create: "},
		{[]string{"history", "a", "b"}, 2, "accepts at most 1 arg"},
		{[]string{"history", "--kubeconfig=/nowhere/at/all"}, 1, "kubectl loadline history: "},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), c.args, &out, &errOut), c.args)
		require.Contains(t, out.String()+errOut.String(), c.want)
	}
}
