package target

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/testkit"
)

func TestResolver_IdentifiesWorkloadByScale(t *testing.T) {
	var fleets testkit.Fleets
	fleets.Put("ns", "web", "uid-1", 2)
	r := newResolver(t, client.NewScales(fleets.In(fake.NewClientset())).Scale)
	key := NewKey("ns", "example.com/v7", "Fleet", "web")
	_, known := r.Workload(key)
	require.False(t, known, "nobody has asked yet")
	w, err := r.Read(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, Workload{Key: key, APIVersion: "example.com/v1", UID: "uid-1"}, w)
	again, known := r.Workload(key)
	require.True(t, known)
	require.Equal(t, w, again)

	require.NoError(t, r.Confirm(t.Context(), w))
	fleets.Break(http.StatusForbidden)
	require.Error(t, r.Confirm(t.Context(), w))
	fleets.Break(http.StatusServiceUnavailable)
	require.Error(t, r.Confirm(t.Context(), w))
	fleets.Break(0)
	fleets.Put("ns", "web", "uid-2", 2)
	require.ErrorContains(t, r.Confirm(t.Context(), w), "Fleet.example.com web in namespace ns was replaced by another object of that name")
	w, known = r.Workload(key)
	require.True(t, known, "it was read")
	require.EqualValues(t, "uid-2", w.UID)
	require.NoError(t, r.Confirm(t.Context(), Workload{Key: Key{Namespace: "ns", Kind: "Deployment", Name: "gone"}}), "an informer would say so")
	fleets.Delete("ns", "web")
	require.ErrorIs(t, r.Confirm(t.Context(), w), ErrNoWorkload)
}

func TestResolverRead_RejectsNonWorkloads(t *testing.T) {
	var fleets testkit.Fleets
	fleets.Put("ns", "bare", "", 2)
	r := newResolver(t, client.NewScales(fleets.In(fake.NewClientset())).Scale)
	for _, tc := range []struct{ name, kind, want string }{
		{name: "missing object", kind: "Fleet", want: "Fleet.example.com web does not exist in namespace ns"},
		{name: "kind without a scale subresource", kind: "Crate", want: "the kind has no scale subresource"},
		{name: "unknown kind", kind: "Flet", want: "no matches for kind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.Read(t.Context(), NewKey("ns", "example.com/v1", tc.kind, "web"))
			require.ErrorIs(t, err, ErrNoWorkload)
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := r.Read(t.Context(), NewKey("ns", "example.com/v1", "Fleet", "../x"))
	require.ErrorIs(t, err, ErrNoWorkload)
	_, known := r.Workload(NewKey("ns", "example.com/v1", "Fleet", "../x"))
	require.False(t, known)
	_, err = r.Read(t.Context(), NewKey("ns", "example.com/v1", "Fleet", "bare"))
	require.ErrorContains(t, err, "has no metadata.uid")
	require.NotErrorIs(t, err, ErrNoWorkload)
}

// Only the topmost controller can be selected.
func TestResolverRead_RejectsOwnedWorkload(t *testing.T) {
	scales := scaled{"ReplicaSet.apps/set": scale("app=x"), "ReplicaSet.apps/alone": scale("app=x")}
	for _, s := range scales {
		s.UID, s.APIVersion = "uid", "apps/v1"
	}
	r := newResolver(t, scales.scale,
		&appsv1.Deployment{ObjectMeta: named("web")},
		&appsv1.ReplicaSet{ObjectMeta: named("set", owner("apps/v1", "Deployment", "web"))},
		&appsv1.ReplicaSet{ObjectMeta: named("alone")})
	_, err := r.Read(t.Context(), NewKey("ns", "apps/v1", "ReplicaSet", "set"))
	require.ErrorIs(t, err, ErrNoWorkload)
	require.ErrorContains(t, err, "select its owner Deployment web instead")
	w, err := r.Read(t.Context(), NewKey("ns", "apps/v1", "ReplicaSet", "alone"))
	require.NoError(t, err)
	require.EqualValues(t, "uid", w.UID)
}

func TestResolverWorkload_TriggersRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fleets testkit.Fleets
		fleets.Put("ns", "web", "uid-1", 2)
		r := &Resolver{scales: newScaleCache(client.NewScales(fleets.In(fake.NewClientset())).Scale)}
		go r.Run(t.Context(), nil)
		key := NewKey("ns", "example.com/v1", "Fleet", "web")
		_, known := r.Workload(key)
		require.False(t, known)
		time.Sleep(2 * scaleLoop)
		_, known = r.Workload(key)
		require.True(t, known)
	})
}

func TestPodOwnerChain_ReturnsControllers(t *testing.T) {
	r := newResolver(t, scaled{}.scale,
		&appsv1.ReplicaSet{ObjectMeta: named("web-1", owner("example.com/v1", "Fleet", "web"))},
		&appsv1.ReplicaSet{ObjectMeta: named("a", owner("apps/v1", "ReplicaSet", "a"))})
	above := func(owners string) (names []string) {
		for key := range r.PodOwnerChain(&corev1.Pod{ObjectMeta: named("p", owner("apps/v1", "ReplicaSet", owners))}) {
			names = append(names, key.String())
		}
		return names
	}
	require.Equal(t, []string{"ReplicaSet web-1", "Fleet.example.com web"}, above("web-1"))
	require.Equal(t, []string{"ReplicaSet gone"}, above("gone"))
	require.Len(t, above("a"), maxOwnerDepth, "a circle")
	for range r.PodOwnerChain(&corev1.Pod{ObjectMeta: named("p")}) {
		t.Fatal("nobody owns it")
	}
}
