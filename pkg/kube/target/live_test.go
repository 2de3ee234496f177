package target

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/client"
)

// A resolver without caches returns the same results as one with caches and reads each controller
// once.
func TestLive_MatchesCachedResolver(t *testing.T) {
	meta := func(name string, owner ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owner}
	}
	by := func(version, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}
	}
	kube := fake.NewClientset(
		&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
		&appsv1.ReplicaSet{ObjectMeta: meta("web-1", by("apps/v1", "Deployment", "web")), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2))}},
		&appsv1.ReplicaSet{ObjectMeta: meta("canary-1", by("argoproj.io/v1alpha1", "Rollout", "canary"))},
		&batchv1.Job{ObjectMeta: meta("night-1", by("batch/v1", "CronJob", "night"))}, &batchv1.CronJob{ObjectMeta: meta("night")},
		&appsv1.StatefulSet{ObjectMeta: meta("db", by("example.com/v1", "Database", "db"))})
	l := NewLive(kube, func(_ context.Context, _ string, kind schema.GroupKind, _ string) (*autoscalingv1.Scale, error) {
		switch kind.Kind {
		case "Rollout":
			return &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 4}, Status: autoscalingv1.ScaleStatus{Selector: "app=canary"}}, nil
		case "Database":
			return nil, client.ErrNoScale
		}
		return nil, errors.New("unreachable")
	})
	key := func(version, kind, name string) Key { return NewKey("ns", version, kind, name) }
	web, canary := key("apps/v1", "Deployment", "web"), key("argoproj.io/v1alpha1", "Rollout", "canary")
	for start, want := range map[Key]Key{
		key("apps/v1", "ReplicaSet", "web-1"):    web,
		key("apps/v1", "ReplicaSet", "canary-1"): canary,
		key("batch/v1", "Job", "night-1"):        key("batch/v1", "CronJob", "night"),
		key("apps/v1", "StatefulSet", "db"):      key("apps/v1", "StatefulSet", "db"),
	} {
		top, found, err := l.Topmost(t.Context(), start)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, want, top)
	}
	for _, missing := range []Key{key("apps/v1", "ReplicaSet", "gone"), key("example.com/v1", "Secret", "x")} {
		_, _, err := l.Topmost(t.Context(), missing)
		require.Error(t, err, missing)
	}
	_, found, err := l.Topmost(t.Context(), key("v1", "Node", "n1"))
	require.NoError(t, err)
	require.False(t, found)

	for of, want := range map[Key]int32{key("apps/v1", "ReplicaSet", "web-1"): 2, web: 3, canary: 4} {
		replicas, known := l.Replicas(t.Context(), of)
		require.True(t, known)
		require.Equal(t, want, replicas)
	}
	_, known := l.Replicas(t.Context(), key("batch/v1", "Job", "night-1"))
	require.False(t, known)

	asked := len(kube.Actions())
	require.True(t, l.Selects(t.Context(), web, map[string]string{"app": "web"}))
	require.False(t, l.Selects(t.Context(), web, map[string]string{"app": "canary"}))
	require.True(t, l.Selects(t.Context(), canary, map[string]string{"app": "canary"}))
	require.False(t, l.Selects(t.Context(), key("apps/v1", "ReplicaSet", "gone"), map[string]string{}))
	require.Len(t, kube.Actions(), asked, "all of them are known")
}
