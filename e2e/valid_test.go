package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"loadline.dev/loadline/admission-controller/mutate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/testkit/drawn"
	"loadline.dev/loadline/updater/actuate"
	"loadline.dev/loadline/updater/snapshot"
)

type limitedNamespace struct {
	name   string
	ranges convert.LimitRanges
	specs  []corev1.LimitRangeSpec
}

const (
	limitedNamespaces = 24
	drawnPods         = 1000 // about one in four is valid with the LimitRanges
)

// drawnLimits creates namespaces with random LimitRanges. The first three have none.
func drawnLimits(t *testing.T) (all []limitedNamespace) {
	t.Helper()
	for i := range limitedNamespaces {
		l := limitedNamespace{name: namespace(t, fmt.Sprintf("valid-%d", i))}
		var objects []*corev1.LimitRange
		if i > 2 {
			objects = rapid.Custom(drawn.Ranges).Example(i)
		}
		// This is the last one created, so its default in a pod shows that admission has read all
		// LimitRanges.
		last := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "last"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceEphemeralStorage: *quantity("1Gi")}}}}}
		for _, o := range append(objects, last) {
			_, err := cluster.Kube.CoreV1().LimitRanges(l.name).Create(t.Context(), o, metav1.CreateOptions{})
			require.NoError(t, err)
			l.specs = append(l.specs, o.Spec)
		}
		l.ranges = convert.Ranges(objects)
		all = append(all, l)
	}
	for _, l := range all {
		eventually(t, "admission has read the LimitRanges of "+l.name, func() error {
			app := corev1.Container{Name: "a", Image: "i", Resources: corev1.ResourceRequirements{Limits: resourceList("1", "1Gi")}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{app}}}
			pod, err := dryCreate(t, l, pod)
			if apierrors.IsForbidden(err) || err == nil && !pod.Spec.Containers[0].Resources.Limits.StorageEphemeral().IsZero() {
				return nil
			}
			return fmt.Errorf("no default yet: %w", err)
		})
	}
	return all
}

func dryCreate(t *testing.T, l limitedNamespace, pod *corev1.Pod) (*corev1.Pod, error) {
	return cluster.Kube.CoreV1().Pods(l.name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func patched(pod *corev1.Pod, m mutate.Mutation) (*corev1.Pod, error) {
	steps, err := json.Marshal(m.Patch)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(steps)
	if err != nil {
		return nil, err
	}
	if text, err = patch.Apply(text); err != nil {
		return nil, err
	}
	after := &corev1.Pod{}
	return after, json.Unmarshal(text, after)
}

// A random pod that the API server accepts must stay valid with the resources of the webhook, and
// when running, with those of the updater.
func TestWebhookAndUpdater_KeepPodsValid(t *testing.T) {
	parallelTest(t)
	limits := drawnLimits(t)
	checked := 0
	for i := range drawnPods {
		l := limits[i%len(limits)]
		pod, vpa := rapid.Custom(drawn.Pod).Example(2*i), rapid.Custom(drawn.VPA).Example(2*i+1)
		admitted, err := dryCreate(t, l, pod)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			continue
		}
		require.NoError(t, err)
		checked++
		admitted.Namespace, admitted.UID, admitted.ResourceVersion = "", "", ""
		m, err := mutate.Config{Boost: true, MaxBoost: resources.Amount(i%3) * 4000}.Patch(admitted, vpa, mutate.Constraints{Ranges: l.ranges})
		require.NoError(t, err)
		after, err := patched(admitted, m)
		require.NoError(t, err)
		_, err = dryCreate(t, l, after)
		assertValid(t, i, err, l, vpa, admitted, after)
		checkResize(t, i, l, vpa, admitted)
	}
	t.Logf("%d of %d pods were valid", checked, drawnPods)
	require.Greater(t, checked, drawnPods/5)
}

func checkResize(t *testing.T, i int, l limitedNamespace, vpa *vpav1.VerticalPodAutoscaler, admitted *corev1.Pod) {
	t.Helper()
	reading := snapshot.NewVPA(vpa, &l.ranges)
	planned := reading.Pod(admitted)
	if planned.PodLevel || planned.ChangesClass() || !planned.NeedsChange() {
		return // not resized
	}
	pods := cluster.Kube.CoreV1().Pods(l.name)
	old := admitted.DeepCopy()
	old.Spec.SchedulerName = "none"
	old, err := pods.Create(t.Context(), old, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, pods.Delete(t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		eventually(t, "the pod is gone", func() error {
			if _, err := pods.Get(t.Context(), old.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.New("it is not")
			}
			return nil
		})
	}()
	fitted := make([]policy.ContainerTarget, 0, len(planned.Containers))
	for _, c := range planned.Containers {
		fitted = append(fitted, c.Target)
	}
	patch, err := actuate.ResizePatch(actuate.Change{Object: old, Autoscaler: reading, Action: disruption.Action{Containers: fitted}})
	require.NoError(t, err)
	_, err = pods.Patch(t.Context(), old.Name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "resize")
	assertValid(t, i, err, l, vpa, old, string(patch))
}

func assertValid(t *testing.T, i int, err error, l limitedNamespace, vpa *vpav1.VerticalPodAutoscaler, before *corev1.Pod, after any) {
	t.Helper()
	if err == nil {
		return
	}
	if pod, is := after.(*corev1.Pod); is {
		after = pod.Spec.Containers
	}
	text, err2 := json.Marshal(map[string]any{"ranges": l.specs, "vpa": vpa.Spec, "recommendation": vpa.Status,
		"init": before.Spec.InitContainers, "before": before.Spec.Containers, "after": after})
	require.NoError(t, err2)
	t.Errorf("pod %d in %s: %v\n%s", i, l.name, err, text)
}
