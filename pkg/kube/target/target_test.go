package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/client"
)

// scaled serves scales of custom kinds by name. Others are not found.
type scaled map[string]*autoscalingv1.Scale

func (s scaled) scale(_ context.Context, _ string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
	if found := s[kind.Kind+"."+kind.Group+"/"+name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name)
}

func scale(selector string, owners ...metav1.OwnerReference) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owners},
		Spec: autoscalingv1.ScaleSpec{Replicas: 5}, Status: autoscalingv1.ScaleStatus{Selector: selector}}
}

func newResolver(t *testing.T, scale Scale, objects ...runtime.Object) *Resolver {
	f := client.Factory(fake.NewClientset(objects...), "", time.Hour, "")
	r := New(f, scale)
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	t.Cleanup(func() { stop(); f.Shutdown() })
	require.NoError(t, client.Sync(ctx, r.Synced()))
	return r
}

func owner(apiVersion, kind, name string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &yes}
}

func named(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
}

func ref(apiVersion, kind, name string) *autoscalingv1.CrossVersionObjectReference {
	return &autoscalingv1.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}
}

func TestResolve_BuiltInKinds(t *testing.T) {
	cron := &batchv1.CronJob{ObjectMeta: named("x")}
	cron.Spec.JobTemplate.Spec.Template.Labels = selector().MatchLabels
	n := int32(3)
	r := newResolver(t, scaled{}.scale,
		&appsv1.Deployment{ObjectMeta: named("x"), Spec: appsv1.DeploymentSpec{Selector: selector(), Replicas: &n}},
		&appsv1.ReplicaSet{ObjectMeta: named("x"), Spec: appsv1.ReplicaSetSpec{Selector: selector(), Replicas: &n}},
		&appsv1.StatefulSet{ObjectMeta: named("x"), Spec: appsv1.StatefulSetSpec{Selector: selector(), Replicas: &n}},
		&appsv1.DaemonSet{ObjectMeta: named("x"), Spec: appsv1.DaemonSetSpec{Selector: selector()}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 1}},
		&corev1.ReplicationController{ObjectMeta: named("x"), Spec: corev1.ReplicationControllerSpec{Selector: selector().MatchLabels, Replicas: &n}},
		&batchv1.Job{ObjectMeta: named("x"), Spec: batchv1.JobSpec{Selector: selector()}}, cron)
	for _, tc := range []struct{ name, version string }{
		{name: "Deployment", version: "apps/v1"},
		{name: "ReplicaSet"},
		{name: "StatefulSet", version: "apps/v1"},
		{name: "DaemonSet", version: "extensions/v1beta1"},
		{name: "ReplicationController", version: "v1"},
		{name: "Job", version: "batch/v1"},
		{name: "CronJob", version: "batch/v1beta1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.Resolve(t.Context(), "ns", ref(tc.version, tc.name, "x"))
			require.NoError(t, err)
			require.Equal(t, "app=x", got.String())
			replicas, known := r.Replicas(t.Context(), RefKey("ns", ref(tc.version, tc.name, "x")))
			require.Equal(t, tc.name != "Job" && tc.name != "CronJob", known)
			if known {
				require.EqualValues(t, 3, replicas)
			}
		})
	}
}

func TestResolve_CustomGroupUsesScale(t *testing.T) {
	r := newResolver(t, scaled{"StatefulSet.example.com/x": scale("app=custom")}.scale,
		&appsv1.StatefulSet{ObjectMeta: named("x"), Spec: appsv1.StatefulSetSpec{Selector: selector()}})
	got, err := r.Resolve(t.Context(), "ns", ref("example.com/v1", "StatefulSet", "x"))
	require.NoError(t, err)
	require.Equal(t, "app=custom", got.String())
	replicas, known := r.Replicas(t.Context(), RefKey("ns", ref("example.com/v1", "StatefulSet", "x")))
	require.True(t, known)
	require.EqualValues(t, 5, replicas)
}

// A previous selection is valid only for an unchanged target. A recreated target may select other
// pods.
func TestSelect_DropsPreviousSelectionOfOtherTarget(t *testing.T) {
	r := newResolver(t, scaled{"Thing.example.com/x": scale("app=x")}.scale,
		&appsv1.Deployment{ObjectMeta: named("x"), Spec: appsv1.DeploymentSpec{Selector: selector()}})
	for _, to := range []*autoscalingv1.CrossVersionObjectReference{ref("apps/v1", "Deployment", "x"), ref("example.com/v1", "Thing", "x")} {
		first, err := r.Select(t.Context(), "ns", to, &Selection{Selector: labels.Nothing(), from: selector(), text: "app=old"})
		require.NoError(t, err)
		require.Equal(t, "app=x", first.Selector.String(), to.Kind)
		again, err := r.Select(t.Context(), "ns", to, first)
		require.NoError(t, err)
		require.Same(t, first, again, to.Kind)
	}
}

func TestResolve_ErrorsNameProblemAndRemedy(t *testing.T) {
	cron := &batchv1.CronJob{ObjectMeta: named("nolabels")}
	forbidden := func(ctx context.Context, ns string, kind schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
		if kind.Kind == "Secret" {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, errors.New("not allowed"))
		}
		return scaled{"Thing.example.com/noselector": scale(""), "Thing.example.com/bad": scale("a in ("), "Thing.example.com/all": scale(" ")}.scale(ctx, ns, kind, name)
	}
	r := newResolver(t, forbidden, cron,
		&appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Selector: selector()}},
		&appsv1.ReplicaSet{ObjectMeta: named("rs", owner("apps/v1", "Deployment", "d")), Spec: appsv1.ReplicaSetSpec{Selector: selector()}},
		&appsv1.ReplicaSet{ObjectMeta: named("lost", owner("apps/v1", "Deployment", "gone")), Spec: appsv1.ReplicaSetSpec{Selector: selector()}},
		&appsv1.StatefulSet{ObjectMeta: named("set", owner("apps/v1", "Deployment", "d")), Spec: appsv1.StatefulSetSpec{Selector: selector()}},
		&appsv1.Deployment{ObjectMeta: named("none")},
		&appsv1.Deployment{ObjectMeta: named("broken"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Perhaps"}}}}},
		&appsv1.Deployment{ObjectMeta: named("all"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}})
	for _, tc := range []struct {
		name string
		ref  *autoscalingv1.CrossVersionObjectReference
		want string
	}{
		{name: "no reference", ref: nil, want: "spec.targetRef is incomplete"},
		{name: "empty name", ref: ref("apps/v1", "Deployment", ""), want: "spec.targetRef is incomplete"},
		{name: "missing target", ref: ref("apps/v1", "Deployment", "nowhere"), want: "Deployment nowhere does not exist in namespace ns"},
		{
			name: "target with an owner", ref: ref("apps/v1", "ReplicaSet", "rs"),
			want: "the target ReplicaSet rs is owned by Deployment d: set spec.targetRef to the owner",
		},
		{
			name: "target with a missing owner", ref: ref("apps/v1", "ReplicaSet", "lost"),
			want: "cannot resolve the owners of the target ReplicaSet lost: Deployment gone does not exist",
		},
		{name: "no selector", ref: ref("apps/v1", "Deployment", "none"), want: "has no label selector"},
		{name: "invalid selector", ref: ref("apps/v1", "Deployment", "broken"), want: "cannot be used"},
		{
			name: "empty selector", ref: ref("apps/v1", "Deployment", "all"),
			want: "empty label selector, which selects every pod of the namespace",
		},
		{name: "template without labels", ref: ref("batch/v1", "CronJob", "nolabels"), want: "label selector"},
		{
			name: "missing custom resource", ref: ref("example.com/v1", "Thing", "nowhere"),
			want: "cannot read the scale subresource of the target Thing.example.com nowhere",
		},
		{
			name: "empty selector in the scale", ref: ref("example.com/v1", "Thing", "noselector"),
			want: "empty status.selector: its custom resource definition needs labelSelectorPath",
		},
		{name: "invalid selector in the scale", ref: ref("example.com/v1", "Thing", "bad"), want: "cannot be used"},
		{name: "blank selector in the scale", ref: ref("example.com/v1", "Thing", "all"), want: "empty label selector"},
		{name: "forbidden scale", ref: ref("v1", "Secret", "s"), want: "not allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.Resolve(t.Context(), "ns", tc.ref)
			require.ErrorContains(t, err, tc.want)
		})
	}
	got, err := r.Selector(t.Context(), "ns", ref("apps/v1", "StatefulSet", "set"))
	require.NoError(t, err, "the selector alone does not ask for owners")
	require.Equal(t, "app=x", got.String())
	_, err = r.Selector(t.Context(), "ns", ref("apps/v1", "ReplicaSet", "rs"))
	require.ErrorContains(t, err, "the target ReplicaSet rs cannot be used: another controller owns it", "its selector is not cached")
}

func TestTopmost_FindsTopmostController(t *testing.T) {
	r := newResolver(t, scaled{
		"Rollout.argoproj.io/roll": scale("app=x", owner("example.com/v1", "Fleet", "fleet")),
		"Circle.example.com/a":     scale("app=x", owner("example.com/v1", "Circle", "b")),
		"Circle.example.com/b":     scale("app=x", owner("example.com/v1", "Circle", "a")),
	}.scale,
		&appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Selector: selector()}},
		&appsv1.Deployment{ObjectMeta: named("plain", owner("example.com/v1", "App", "unscalable")), Spec: appsv1.DeploymentSpec{Selector: selector()}},
		&appsv1.ReplicaSet{ObjectMeta: named("rs", owner("apps/v1", "Deployment", "d"))},
		&appsv1.ReplicaSet{ObjectMeta: named("rolled", owner("argoproj.io/v1alpha1", "Rollout", "roll"))},
		&appsv1.ReplicaSet{ObjectMeta: named("orphan", owner("apps/v1", "Deployment", "gone"))})
	top := func(apiVersion, kind, name string) (Key, bool, error) {
		return r.Topmost(t.Context(), NewKey("ns", apiVersion, kind, name))
	}
	for _, tc := range []struct{ name, kind, object, want string }{
		{name: "ReplicaSet of a Deployment", kind: "ReplicaSet", object: "rs", want: "Deployment d"},
		{name: "Deployment without an owner", kind: "Deployment", object: "d", want: "Deployment d"},
		{name: "Deployment of an owner that cannot be scaled", kind: "Deployment", object: "plain", want: "Deployment plain"},
		{name: "ReplicaSet of a Rollout", kind: "ReplicaSet", object: "rolled", want: "Rollout.argoproj.io roll"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, found, err := top("apps/v1", tc.kind, tc.object)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, tc.want, got.String())
		})
	}
	_, found, err := top("v1", "Node", "n")
	require.NoError(t, err)
	require.False(t, found)
	barren := newResolver(t, func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
		return nil, client.ErrNoScale
	})
	_, found, err = barren.Topmost(t.Context(), NewKey("ns", "example.com/v1", "Machine", "m"))
	require.NoError(t, err, "a kind that cannot be scaled is no controller, as one whose scale is not found")
	require.False(t, found)
	_, found, err = top("example.com/v1", "Fleet", "fleet")
	require.NoError(t, err)
	require.False(t, found)
	_, _, err = top("apps/v1", "ReplicaSet", "orphan")
	require.ErrorContains(t, err, "Deployment gone does not exist")
	_, _, err = top("example.com/v1", "Circle", "a")
	require.ErrorContains(t, err, "the owners form a cycle: ")
}

// References become part of a request path. With the permissions of the program, they could read
// objects in another namespace.
func TestResolver_RejectsPathsInReferences(t *testing.T) {
	asked := 0
	r := newResolver(t, func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
		asked++
		return scale("app=x", owner("example.com/v1", "Fleet", "..")), nil
	}, &appsv1.ReplicaSet{ObjectMeta: named("rs", owner("example.com/v1", "Thing", "../../../kube-system/things/x"))})
	for _, tc := range []struct {
		name string
		ref  *autoscalingv1.CrossVersionObjectReference
		want string
	}{
		{
			name: "path in the name", ref: ref("example.com/v1", "Thing", "../../other/things/x"),
			want: `spec.targetRef: name "../../other/things/x": may not contain '/', because it is part of the path of a request`,
		},
		{name: "parent folder as the name", ref: ref("example.com/v1", "Thing", ".."), want: `spec.targetRef: name "..": may not be '..'`},
		{name: "escaped name", ref: ref("example.com/v1", "Thing", "%2e%2e"), want: `spec.targetRef: name "%2e%2e": may not contain '%'`},
		{
			name: "path in the kind", ref: ref("example.com/v1", "Things/x", "y"),
			want: `spec.targetRef: kind "Things/x": may not contain '/'`,
		},
		{
			name: "escape sequence in the name", ref: ref("example.com/v1", "Thing", "a\x1b[2J"),
			want: `spec.targetRef: name "a\x1b[2J": may not contain spaces, control characters or invalid UTF-8`,
		},
		{
			name: "line break in the name", ref: ref("example.com/v1", "Thing", "a\nb"),
			want: `spec.targetRef: name "a\nb": may not contain spaces`,
		},
		{
			name: "bidirectional control character in the name", ref: ref("example.com/v1", "Thing", "a\u202eb"),
			want: `spec.targetRef: name "a\u202eb": may not contain spaces`,
		},
		{
			name: "control character in the kind", ref: ref("example.com/v1", "Thing\x9b", "a"),
			want: `spec.targetRef: kind "Thing\x9b": may not contain spaces`,
		},
		{
			name: "tab in the group", ref: ref("example.com\t/v1", "Thing", "a"),
			want: `spec.targetRef: group of apiVersion "example.com\t": may not contain spaces`,
		},
		{
			name: "parent folder as the group", ref: ref("../v1", "Thing", "y"),
			want: `spec.targetRef: group of apiVersion "..": may not be '..'`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.Selector(t.Context(), "ns", tc.ref)
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, _, err := r.Topmost(t.Context(), NewKey("ns", "example.com/v1", "Thing", "../x"))
	require.ErrorContains(t, err, `metadata.ownerReferences of a pod in namespace ns: name "../x": may not contain '/'`)
	_, _, err = r.Topmost(t.Context(), NewKey("ns", "apps/v1", "ReplicaSet", "rs"))
	require.ErrorContains(t, err, `metadata.ownerReferences of ReplicaSet rs in namespace ns: name "../../../kube-system/things/x": may not contain '/'`)
	require.Zero(t, asked)
	_, _, err = r.Topmost(t.Context(), NewKey("ns", "example.com/v1", "Thing", "x"))
	require.ErrorContains(t, err, `metadata.ownerReferences of Thing.example.com x in namespace ns: name "..": may not be '..'`)
	require.Equal(t, 1, asked)
	_, _, err = r.Topmost(t.Context(), NewKey("", "example.com/v1", "Thing", "x"))
	require.ErrorContains(t, err, `namespace "": must not be empty`)
}

// Pods of a Node are static. A VPA cannot control them, even if a server returns a scale of the
// Node.
func TestSelector_RejectsNode(t *testing.T) {
	r := newResolver(t, scaled{"Node./n": scale("app=x")}.scale)
	for _, version := range []string{"v1", "", "core/v1"} {
		_, err := r.Selector(t.Context(), "ns", ref(version, "Node", "n"))
		require.ErrorContains(t, err, "owns static pods, which are configured in files on the node: set another controller")
	}
}

func TestController_ReturnsControllerOwner(t *testing.T) {
	no := false
	key, found := Controller("ns", []metav1.OwnerReference{owner("apps/v1", "ReplicaSet", "first"), {Kind: "Thing"}, owner("apps/v1", "ReplicaSet", "last"), {Kind: "Thing", Controller: &no}})
	require.True(t, found)
	require.Equal(t, NewKey("ns", "apps/v1", "ReplicaSet", "last"), key)
	_, found = Controller("ns", []metav1.OwnerReference{owner("v1", "Node", "n")})
	require.False(t, found)
	_, found = Controller("ns", nil)
	require.False(t, found)
}

func TestScaleCache_CachesAndRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls, text, fails := 0, "app=x", error(nil)
		c := newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return scale(text), fails
		})
		answer := func(with string, err error) (soFar int) {
			mu.Lock()
			defer mu.Unlock()
			text, fails = with, err
			return calls
		}
		var forgotten atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		go c.run(ctx, func() { forgotten.Add(1) })
		read := func() (string, error) {
			a, err := c.get(t.Context(), Key{Kind: "Thing"})
			return a.selector, err
		}
		for range 100 {
			_, _ = read()
		}
		require.Equal(t, 1, answer("app=y", nil))

		time.Sleep(21 * time.Minute)
		got, _ := read()
		require.Equal(t, "app=y", got)

		// An unreachable server keeps the cached result.
		answer("app=y", errors.New("timeout"))
		time.Sleep(25 * time.Minute)
		got, err := read()
		require.NoError(t, err)
		require.Equal(t, "app=y", got)
		// A missing workload replaces it.
		answer("", apierrors.NewNotFound(schema.GroupResource{}, "x"))
		time.Sleep(11 * time.Minute)
		_, err = read()
		require.Error(t, err)
		// Failures are retried soon.
		before := answer("app=y", nil)
		time.Sleep(11 * time.Minute)
		_, err = read()
		require.NoError(t, err)

		time.Sleep(3 * time.Hour)
		synctest.Wait() // a refresh may be due at this time
		require.LessOrEqual(t, answer("", nil)-before, 8, "what nobody reads is asked for no more")
		require.Empty(t, c.entries, "and dropped")
		require.Positive(t, forgotten.Load())
		stop()
		synctest.Wait()
	})
}

// The refresh loop is idle while the cache is empty.
func TestScaleCache_RefreshesAfterIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			calls.Add(1)
			return scale("app=x"), nil
		})
		ctx, stop := context.WithCancel(t.Context())
		go c.run(ctx, nil)
		for i := range 3 {
			time.Sleep(3 * time.Hour)
			c.mu.Lock()
			require.Empty(t, c.entries, "forgotten")
			c.mu.Unlock()
			key := Key{Kind: "Machine", Name: fmt.Sprint(i)}
			_, known, _ := c.lookup(key, true)
			require.False(t, known)
			time.Sleep(scaleLoop)
			synctest.Wait()
			_, known, err := c.lookup(key, false)
			require.NoError(t, err)
			require.True(t, known)
			before := calls.Load()
			time.Sleep(2*scaleRefresh + scaleLoop)
			require.Greater(t, calls.Load(), before)
		}
		stop()
		synctest.Wait()
	})
}

// Only the kind is cached if it has no scale subresource, not its objects.
func TestScaleCache_RequestsKindWithoutScaleOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var scalable atomic.Bool
		c := newScaleCache(func(context.Context, string, schema.GroupKind, string) (*autoscalingv1.Scale, error) {
			calls.Add(1)
			if scalable.Load() {
				return scale("app=x"), nil
			}
			return nil, fmt.Errorf("kind Machine: %w", client.ErrNoScale)
		})
		ctx, stop := context.WithCancel(t.Context())
		go c.run(ctx, nil)
		for i := range 1000 {
			key := Key{Kind: "Machine", Name: fmt.Sprint(i)}
			_, err := c.get(t.Context(), key)
			require.ErrorIs(t, err, client.ErrNoScale)
			_, known, err := c.lookup(key, false)
			require.True(t, known, "nobody has to wait")
			require.ErrorIs(t, err, client.ErrNoScale)
		}
		require.EqualValues(t, 1, calls.Load())
		require.Empty(t, c.entries)

		time.Sleep(time.Hour)
		require.LessOrEqual(t, calls.Load(), int32(1+time.Hour/discoveryLife), "one question for the kind each time that discovery is read again")
		scalable.Store(true)
		time.Sleep(discoveryLife + time.Second)
		a, err := c.get(t.Context(), Key{Kind: "Machine", Name: "0"})
		require.NoError(t, err)
		require.Equal(t, "app=x", a.selector)
		stop()
		synctest.Wait()
	})
}

// A missing object is requested less and less often, but at least once an hour.
func TestScaleCache_RequestsMissingObjectsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		c := newScaleCache(func(_ context.Context, _ string, _ schema.GroupKind, name string) (*autoscalingv1.Scale, error) {
			at = append(at, time.Since(begin))
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		})
		ctx, stop := context.WithCancel(t.Context())
		go c.run(ctx, nil)
		for range 24 * 60 {
			_, err := c.get(t.Context(), Key{Kind: "Thing", Name: "x"})
			require.True(t, apierrors.IsNotFound(err))
			time.Sleep(time.Minute)
		}
		stop()
		synctest.Wait()
		require.LessOrEqual(t, len(at), 9+24, "a day")
		require.GreaterOrEqual(t, len(at), 24)
		require.Less(t, at[3], 3*time.Minute, "soon at first: the object may come a moment later")
		for i := 1; i < len(at); i++ {
			require.LessOrEqual(t, at[i]-at[i-1], maxMissingRetry+2*scaleLoop)
		}
	})
}

// FuzzCheckRef checks that accepted targets cannot change a request path, that errors are
// printable, and that valid names are accepted.
func FuzzCheckRef(f *testing.F) {
	for _, seed := range [][3]string{{"apps/v1", "Deployment", "web"}, {"example.com/v1", "Thing", "a-b.c"}, {"v1", "Thing", "system:a"},
		{"a/b", "..", "../x"}, {"", "K\x1b", "a b"}, {"x/v1", "K", "%2e"}, {"x/v1", "K", "a\u202e"}, {"x/v1", "K", "\xff"}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, version, kind, name string) {
		target := ref(version, kind, name)
		key := RefKey("ns", target)
		notPrinted := func(r rune) bool { return !unicode.IsPrint(r) }
		text := key.String()
		require.False(t, strings.ContainsFunc(text, notPrinted), "%q", text)
		err := CheckRef(target)
		if err == nil {
			for _, part := range []string{cmp.Or(key.Group, "core"), key.Kind, key.Name} {
				require.Equal(t, "/apis/"+part+"/scale", path.Join("/apis", part, "scale"))
				require.False(t, strings.ContainsAny(part, "/% \t\r\n"))
			}
			return
		}
		require.False(t, strings.ContainsFunc(err.Error(), notPrinted), "%q", err.Error())
		if kind == "Thing" && version == "example.com/v1" && len(content.IsDNS1123Subdomain(name)) == 0 {
			t.Errorf("%q is the name of an object: %v", name, err)
		}
	})
}
