package policies

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/rollout"
	vpafake "loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	"loadline.dev/loadline/pkg/kube/client"
)

// fleetOf returns a cluster with the policies shop and pay, each for the namespace of the same
// name. Each namespace has a Deployment web with a generated VPA and a StatefulSet db with a user
// VPA, with one pod under observation and one record each. Namespace shop also has the record of a
// deleted Deployment.
func fleetOf(t *testing.T) (*client.Clients, *kubefake.Clientset, *vpafake.Clientset) {
	t.Helper()
	kube, own := kubefake.NewClientset(), vpafake.NewSimpleClientset()
	cpu := func(a resources.Amount) policy.Container {
		return policy.Container{Name: "c", Requests: resources.List{}.With(resources.CPU, a)}
	}
	notes := convert.FormatChange(rollout.Change{At: time.Unix(1000, 0), Containers: []rollout.ContainerChange{{From: cpu(800), To: cpu(400)}}})
	notes["example.com/theirs"] = "stays"
	for _, ns := range []string{"shop", "pay"} {
		meta := func(name string, owner ...string) metav1.ObjectMeta {
			m := metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + name)}
			if len(owner) > 0 {
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner[0], Name: owner[1], UID: types.UID(ns + owner[1]), Controller: new(true)}}
			}
			return m
		}
		pod := func(name string, owner ...string) *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: meta(name, owner...)}
			p.Annotations = notes
			return p
		}
		for _, object := range []runtime.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
			&appsv1.Deployment{ObjectMeta: meta("web")}, &appsv1.ReplicaSet{ObjectMeta: meta("web-1", "Deployment", "web")}, pod("web-1-a", "ReplicaSet", "web-1"),
			&appsv1.StatefulSet{ObjectMeta: meta("db")}, pod("db-0", "StatefulSet", "db"), pod("alone"),
		} {
			require.NoError(t, kube.Tracker().Add(object))
		}
		vpa := func(name, kind, workload string) *vpav1.VerticalPodAutoscaler {
			return &vpav1.VerticalPodAutoscaler{ObjectMeta: meta(name), Spec: vpav1.VerticalPodAutoscalerSpec{
				TargetRef:    &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: kind, Name: workload},
				UpdatePolicy: &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}}}
		}
		made := vpa("deployment-web", "Deployment", "web")
		copied := vpa("copy", "Deployment", "elsewhere") // created by a user, with the label
		made.Labels, copied.Labels = map[string]string{fleet.PolicyLabel: ns}, map[string]string{fleet.PolicyLabel: ns}
		for _, object := range []runtime.Object{
			&loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: loadlinev1alpha1.SizingPolicySpec{
				Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{ns}}, Rollout: &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto)},
				Workloads: []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"}}}},
			made, copied, vpa("db", "StatefulSet", "db"),
			&loadlinev1alpha1.SizingRecord{ObjectMeta: meta("deployment-web", "Deployment", "web")},
			&loadlinev1alpha1.SizingRecord{ObjectMeta: meta("statefulset-db", "StatefulSet", "db")},
		} {
			require.NoError(t, own.Tracker().Add(object))
		}
	}
	require.NoError(t, own.Tracker().Add(&loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-old",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "old"}}}}))
	return &client.Clients{Kube: kube, VPA: own}, kube, own
}

func observed(t *testing.T, clients *client.Clients) (names []string) {
	t.Helper()
	list, err := clients.Kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		p := &list.Items[i]
		require.Equal(t, "stays", p.Annotations["example.com/theirs"])
		if len(p.Annotations) > 1 {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}

func recordsLeft(t *testing.T, clients *client.Clients) (names []string) {
	t.Helper()
	list, err := clients.VPA.LoadlineV1alpha1().SizingRecords("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, r := range list.Items {
		names = append(names, r.Namespace+"/"+r.Name)
	}
	return names
}

func runDetach(t *testing.T, clients *client.Clients, o detachOptions) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := detach(t.Context(), clients, o, &out)
	return out.String(), err
}

func TestDetach_EndsObservationsAndRemovesRecords(t *testing.T) {
	clients, _, own := fleetOf(t)
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Equal(t, `SizingPolicy shop: paused
pod shop/db-0: is no longer under observation, and keeps its sizes
pod shop/web-1-a: is no longer under observation, and keeps its sizes
SizingRecord shop/deployment-old: removed
SizingRecord shop/deployment-web: removed
SizingRecord shop/statefulset-db: removed
VPAs generated for it that stay: 1; with mode Off they change no pod
`, said)
	require.Equal(t, []string{"pay/alone", "pay/db-0", "pay/web-1-a", "shop/alone"}, observed(t, clients), "those of others stay")
	require.Equal(t, []string{"pay/deployment-web", "pay/statefulset-db"}, recordsLeft(t, clients))
	for name, paused := range map[string]bool{"shop": true, "pay": false} {
		p, err := own.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, paused, p.Spec.Paused != nil && *p.Spec.Paused)
	}
	vpas, err := own.AutoscalingV1().VerticalPodAutoscalers("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, vpas.Items, 6)

	said, err = runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Equal(t, `SizingPolicy shop: is paused already
nothing is left to remove
VPAs generated for it that stay: 1; with mode Off they change no pod
`, said)
}

// No program takes back the shares of pods of a paused policy.
func TestDetach_ReportsShares(t *testing.T) {
	clients, kube, _ := fleetOf(t)
	for _, pod := range []string{"shop/web-1-a", "shop/db-0", "shop/alone", "pay/web-1-a"} {
		ns, name, _ := strings.Cut(pod, "/")
		_, err := kube.CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"loadline.dev/shared":"x"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	for _, dry := range []bool{true, false} {
		said, err := runDetach(t, clients, detachOptions{Policy: "shop", DryRun: dry})
		require.NoError(t, err)
		require.Contains(t, said, "\n! 2 pods keep their share of the node headroom,")
	}
}

// A newer pod or record with the same name must not be changed.
func TestDetach_TestsUIDs(t *testing.T) {
	clients, kube, own := fleetOf(t)
	_, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	var pods, records []string
	for _, action := range kube.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			require.Contains(t, string(patch.GetPatch()), `"uid":"shop`+patch.GetName()+`"`)
			pods = append(pods, patch.GetName())
		}
	}
	for _, action := range own.Actions() {
		if remove, ok := action.(clienttesting.DeleteActionImpl); ok && remove.Name != "deployment-old" {
			require.EqualValues(t, "shop"+remove.Name, *remove.DeleteOptions.Preconditions.UID)
			records = append(records, remove.Name)
		}
	}
	require.Len(t, pods, 2)
	require.Len(t, records, 2)
}

// A single annotation counts as well. The owner of several pods is read only once.
func TestDetach_RemovesAllAnnotations(t *testing.T) {
	clients, kube, _ := fleetOf(t)
	for _, key := range []string{convert.ResizedAtAnnotation, convert.OriginalAnnotation} {
		p, err := kube.CoreV1().Pods("shop").Get(t.Context(), "web-1-a", metav1.GetOptions{})
		require.NoError(t, err)
		p.Name, p.ResourceVersion, p.Annotations = "web-1-"+strings.ToLower(key[len("loadline.dev/"):]), "", map[string]string{key: "?", "example.com/theirs": "stays"}
		require.NoError(t, kube.Tracker().Add(p))
	}
	_, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Equal(t, []string{"pay/alone", "pay/db-0", "pay/web-1-a", "shop/alone"}, observed(t, clients))
	reads := 0
	for _, action := range kube.Actions() {
		if action.Matches("get", "replicasets") && action.GetNamespace() == "shop" {
			reads++
		}
	}
	require.Equal(t, 1, reads)
}

func TestDetach_RecordWithOtherOwners(t *testing.T) {
	clients, _, own := fleetOf(t)
	records := own.LoadlineV1alpha1().SizingRecords("shop")
	r, err := records.Get(t.Context(), "statefulset-db", metav1.GetOptions{})
	require.NoError(t, err)
	r.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "App", Name: "shop"}}, r.OwnerReferences...)
	_, err = records.Update(t.Context(), r, metav1.UpdateOptions{})
	require.NoError(t, err)
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Contains(t, said, "SizingRecord shop/statefulset-db: removed")
}

func TestDetach_DryRun(t *testing.T) {
	clients, kube, own := fleetOf(t)
	said, err := runDetach(t, clients, detachOptions{Policy: "shop", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, `SizingPolicy shop: would be paused
pod shop/db-0: would no longer be under observation, and keep its sizes
pod shop/web-1-a: would no longer be under observation, and keep its sizes
SizingRecord shop/deployment-old: would be removed
SizingRecord shop/deployment-web: would be removed
SizingRecord shop/statefulset-db: would be removed
VPAs generated for it that stay: 1; with mode Off they change no pod
`, said)
	for _, action := range append(kube.Actions(), own.Actions()...) {
		require.Contains(t, []string{"get", "list"}, action.GetVerb())
	}
}

// The policy is paused first, because an active updater would annotate pods and write records
// again.
func TestDetach_StopsIfPauseFails(t *testing.T) {
	clients, _, own := fleetOf(t)
	own.PrependReactor("patch", "sizingpolicies", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.EqualError(t, err, "pause SizingPolicy shop: refused")
	require.Empty(t, said)
	require.Len(t, observed(t, clients), 6)
	require.Len(t, recordsLeft(t, clients), 5)
}

func TestDetach_ContinuesAfterErrors(t *testing.T) {
	clients, kube, own := fleetOf(t)
	kube.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.(clienttesting.PatchAction).GetName() == "db-0", nil, errors.New("refused")
	})
	own.PrependReactor("delete", "sizingrecords", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch a.(clienttesting.DeleteAction).GetName() {
		case "deployment-old":
			return true, nil, errors.New("refused, too")
		case "deployment-web":
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "sizingrecords"}, "deployment-web")
		}
		return false, nil, nil
	})
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.EqualError(t, err, "pod shop/db-0: refused\nSizingRecord shop/deployment-old: refused, too")
	require.Contains(t, said, "pod shop/web-1-a: is no longer under observation")
	require.Contains(t, said, "SizingRecord shop/statefulset-db: removed")
	require.NotContains(t, said, "deployment-web: removed", "it was gone")
	require.NotContains(t, said, "nothing is left")
}

// If the policy is already deleted, the generated VPAs identify its workloads.
func TestDetach_DeletedPolicy(t *testing.T) {
	clients, _, own := fleetOf(t)
	require.NoError(t, own.LoadlineV1alpha1().SizingPolicies().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Equal(t, `SizingPolicy shop: does not exist
pod shop/web-1-a: is no longer under observation, and keeps its sizes
SizingRecord shop/deployment-web: removed
VPAs generated for it that stay: 1; with mode Off they change no pod
`, said)
	_, err = runDetach(t, clients, detachOptions{Policy: "other"})
	require.EqualError(t, err, "SizingPolicy other does not exist, and no VPA was made for it")
}

// A policy with a higher priority may have taken over a workload before the VPA has its label.
func TestDetach_KeepsWorkloadsOfOtherPolicies(t *testing.T) {
	clients, _, own := fleetOf(t)
	stronger := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Priority: new(int32(500)), Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"*"}},
		Workloads: []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}}}}
	require.NoError(t, own.Tracker().Add(stronger))
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.NotContains(t, said, "web-1-a")
	require.NotContains(t, said, "deployment-web")
	require.Contains(t, said, "SizingRecord shop/statefulset-db: removed")
}

func TestDetach_RecordWithoutOwner(t *testing.T) {
	clients, _, own := fleetOf(t)
	for _, name := range []string{"deployment-web", "deployment-restored"} {
		r := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		_ = own.Tracker().Delete(loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords"), "shop", name)
		require.NoError(t, own.Tracker().Add(r))
	}
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Contains(t, said, "SizingRecord shop/deployment-web: removed")
	require.NotContains(t, said, "restored", "nobody knows whose it is")
}

func TestDetach_ReportsActiveVPAs(t *testing.T) {
	clients, _, own := fleetOf(t)
	vpas := own.AutoscalingV1().VerticalPodAutoscalers("shop")
	made, err := vpas.Get(t.Context(), "deployment-web", metav1.GetOptions{})
	require.NoError(t, err)
	made.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeRecreate)
	_, err = vpas.Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Contains(t, said, "! VPA shop/deployment-web was made for it and is of mode Recreate: other programs may change pods because of it. Set its mode to Off, or remove it\n")
}

func TestDetach_WithoutRecordCRD(t *testing.T) {
	clients, kube, own := fleetOf(t)
	own.PrependReactor("list", "sizingrecords", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "sizingrecords"}, "")
	})
	_, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	_, err = runDetach(t, clients, detachOptions{Policy: "shop"})
	require.EqualError(t, err, "list pods: forbidden")
}

func TestDetach_ReadsPodsInPages(t *testing.T) {
	clients, kube, _ := fleetOf(t)
	var asked []string
	kube.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, options.Continue)
		require.EqualValues(t, inventory.PodsPerPage, options.Limit)
		if options.Continue == "" {
			return true, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}}, nil
		}
		return false, nil, nil
	})
	said, err := runDetach(t, clients, detachOptions{Policy: "shop"})
	require.NoError(t, err)
	require.Equal(t, []string{"", "more"}, asked)
	require.Contains(t, said, "pod shop/db-0")
}

func TestDetach_CommandLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{name: "no command", code: 2, want: "missing command: must be detach"},
		{name: "unknown command", args: []string{"attach", "shop"}, code: 2, want: "missing command: must be detach"},
		{name: "help", args: []string{"detach", "--help"}, code: 0, want: "Usage: kubectl loadline policy detach [flags] NAME"},
		{name: "no policy", args: []string{"detach"}, code: 2, want: "must have the name of one SizingPolicy as argument"},
		{name: "unknown flag", args: []string{"detach", "--force", "shop"}, code: 2, want: "--force"},
		{name: "missing kubeconfig", args: []string{"detach", "--kubeconfig=/nowhere/at/all", "shop"}, code: 1,
			want: "kubectl loadline policy detach: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			require.Equal(t, tc.code, cli.Run(t.Context(), Commands(), append([]string{"policy"}, tc.args...), &out, &errOut))
			require.Contains(t, strings.TrimSpace(out.String()+errOut.String()), tc.want)
		})
	}
}
