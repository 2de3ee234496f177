package nodeload

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// cleared runs Clear with a timeout on three nodes, two of them tainted.
func cleared(t *testing.T, atMost time.Duration, change func(kube *fake.Clientset)) (left []string, took time.Duration, logged string) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		other := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
		for name, taints := range map[string][]corev1.Taint{"a": {taint}, "b": {other}, "c": {other, taint}} {
			require.NoError(t, kube.Tracker().Add(object(name, func(n *corev1.Node) { n.Spec.Taints = taints })))
		}
		change(kube)
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))), atMost)
		defer cancel()
		begin := time.Now()
		Clear(ctx, kube)
		took, logged = time.Since(begin), log.String()
		for _, name := range []string{"a", "b", "c"} {
			object, err := kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", name)
			require.NoError(t, err)
			n := object.(*corev1.Node)
			if Tainted(n) {
				left = append(left, name)
			}
			require.Equal(t, name != "a", len(n.Spec.Taints) > 0 && n.Spec.Taints[0] == other, "%s: %v", name, n.Spec.Taints)
		}
	})
	return left, took, logged
}

func TestClear_RemovesOwnTaints(t *testing.T) {
	left, took, logged := cleared(t, time.Hour, func(*fake.Clientset) {})
	require.Empty(t, left)
	require.Zero(t, took, "it ends then")
	require.Contains(t, logged, `"Node takes new pods again: --node-load-taint is off" node="a"`)
	require.NotContains(t, logged, `node="b"`)
}

func TestClear_ListsAllPages(t *testing.T) {
	var asked []metav1.ListOptions
	left, took, _ := cleared(t, time.Hour, func(kube *fake.Clientset) {
		kube.PrependReactor("list", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
			o := a.(ktesting.ListActionImpl).ListOptions
			asked = append(asked, o)
			object, err := kube.Tracker().Get(a.GetResource(), "", map[string]string{"": "b", "second": "c"}[o.Continue])
			if err != nil {
				return true, nil, err
			}
			page := &corev1.NodeList{Items: []corev1.Node{*object.(*corev1.Node)}}
			if o.Continue == "" {
				page.Continue = "second"
			}
			return true, page, nil
		})
	})
	require.Equal(t, []string{"a"}, left, "no page had it")
	require.Zero(t, took)
	require.Equal(t, []metav1.ListOptions{{Limit: pageSize}, {Limit: pageSize, Continue: "second"}}, asked)
}

func TestClear_RetriesConflicts(t *testing.T) {
	tries := 0
	left, took, logged := cleared(t, time.Hour, func(kube *fake.Clientset) {
		kube.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
			if a.(ktesting.PatchAction).GetName() == "a" {
				tries++
			}
			return tries < 3 && a.(ktesting.PatchAction).GetName() == "a", nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "a", errors.New("it has been modified"))
		})
	})
	require.Empty(t, left)
	require.Equal(t, 2*time.Minute, took)
	require.Contains(t, logged, "Nodes may still have the taint loadline.dev/overloaded, which --node-load-taint=off removes")
	require.Contains(t, logged, "No node has the taint loadline.dev/overloaded any more")
}

func TestClear_LogsMissingPatchPermission(t *testing.T) {
	left, took, logged := cleared(t, 5*time.Minute, func(kube *fake.Clientset) {
		kube.PrependReactor("patch", "nodes", func(a ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
		})
	})
	require.Equal(t, []string{"a", "c"}, left)
	require.Equal(t, 5*time.Minute, took)
	require.Contains(t, logged, "apply deploy/node-load")
}

func TestClear_EndsWithoutListPermission(t *testing.T) {
	left, took, logged := cleared(t, time.Hour, func(kube *fake.Clientset) {
		kube.PrependReactor("list", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
		})
	})
	require.Equal(t, []string{"a", "c"}, left)
	require.Zero(t, took)
	require.Empty(t, logged)
}
