package records

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
	typed "loadline.dev/loadline/pkg/generated/clientset/versioned/typed/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/testkit"
)

var (
	noon     = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	resource = schema.GroupResource{Group: loadlinev1alpha1.GroupName, Resource: "sizingrecords"}
)

func workload(name, uid string) target.Workload {
	return target.Workload{Key: target.Key{Namespace: "shop", Kind: "Deployment", Name: name}, APIVersion: "apps/v1", UID: types.UID(uid)}
}

var web = workload("web", "uid-web")

func record(version string, pods int32, owner string) *loadlinev1alpha1.SizingRecord {
	r := &loadlinev1alpha1.SizingRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment-web", ResourceVersion: version},
		Status: loadlinev1alpha1.SizingRecordStatus{Mode: "Auto", Rounds: []loadlinev1alpha1.Round{{Time: metav1.NewTime(noon), Pods: pods}}}}
	if owner != "" {
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: types.UID(owner)}}
	}
	return r
}

func newStore(t *testing.T, dryRun bool, objects ...runtime.Object) (*Store, *fake.Clientset) {
	t.Helper()
	client := fake.NewSimpleClientset(objects...)
	factory := externalversions.NewSharedInformerFactory(client, 0)
	s, err := Watch(client, factory.Loadline().V1alpha1().SizingRecords(), nil, dryRun)
	require.NoError(t, err)
	_, err = s.State(web)
	require.ErrorIs(t, err, sizing.ErrUnknown, "before the cache is filled")
	_, err = s.Update(t.Context(), web, addPod)
	require.ErrorIs(t, err, sizing.ErrUnknown)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(stop)
	factory.Start(ctx.Done())
	require.Eventually(t, func() bool { return s.synced() && testkit.Watched(client, "sizingrecords") }, time.Minute, time.Millisecond)
	client.ClearActions()
	return s, client
}

func frozenCache(t *testing.T, objects ...*loadlinev1alpha1.SizingRecord) cache.Store {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, o := range objects {
		require.NoError(t, store.Add(compact(o)))
	}
	return store
}

// addPod counts a pod in the current round.
func addPod(s rollout.State) rollout.State {
	rounds := append([]rollout.Round{}, s.Rounds...)
	if len(rounds) == 0 {
		rounds = []rollout.Round{{Time: noon}}
	}
	rounds[0].Pods++
	s.Rounds = rounds
	return s
}

func getRecord(t *testing.T, client *fake.Clientset) *loadlinev1alpha1.SizingRecord {
	t.Helper()
	r, err := client.LoadlineV1alpha1().SizingRecords("shop").Get(t.Context(), "deployment-web", metav1.GetOptions{})
	require.NoError(t, err)
	return r
}

// rejectStaleUpdates makes a clientset refuse updates of old versions, like an API server.
func rejectStaleUpdates(t *testing.T, client *fake.Clientset) (conflicts *int) {
	conflicts = new(int)
	client.PrependReactor("update", "sizingrecords", func(a ktesting.Action) (bool, runtime.Object, error) {
		r := a.(ktesting.UpdateAction).GetObject().(*loadlinev1alpha1.SizingRecord)
		is, err := client.Tracker().Get(loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords"), "shop", r.Name)
		require.NoError(t, err)
		if is.(*loadlinev1alpha1.SizingRecord).ResourceVersion != r.ResourceVersion {
			*conflicts++
			return true, nil, apierrors.NewConflict(resource, r.Name, errors.New("modified"))
		}
		r.ResourceVersion += "0"
		return false, nil, nil
	})
	return conflicts
}

// The cache has not seen the last write of the previous leader, whose counts must survive.
func TestStoreUpdate_RetriesOnConflict(t *testing.T) {
	s, client := newStore(t, false, record("5", 1, "uid-web"))
	conflicts := rejectStaleUpdates(t, client)
	// The cache stays at version 5.
	theirs := record("7", 40, "uid-web")
	theirs.Status.PolicyHash = "theirs"
	s.cached = frozenCache(t, record("5", 1, "uid-web"))
	require.NoError(t, client.Tracker().Update(loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords"), theirs, "shop"))

	calls := 0
	got, err := s.Update(t.Context(), web, func(before rollout.State) rollout.State {
		calls++
		return addPod(before)
	})
	require.NoError(t, err)
	require.Equal(t, 1, *conflicts)
	require.Equal(t, 2, calls, "the change is made anew on what is there")
	require.Equal(t, 41, got.Rounds[0].Pods)
	require.EqualValues(t, 41, getRecord(t, client).Status.Rounds[0].Pods)
	require.Equal(t, "theirs", getRecord(t, client).Status.PolicyHash)

	// The store returns its own writes before the cache has them.
	state, err := s.State(web)
	require.NoError(t, err)
	require.Equal(t, 41, state.Rounds[0].Pods)
	_, err = s.Update(t.Context(), web, addPod)
	require.NoError(t, err)
	require.Equal(t, 1, *conflicts)
	require.EqualValues(t, 42, getRecord(t, client).Status.Rounds[0].Pods)
}

func TestStoreUpdate_KeepsUncachedRecord(t *testing.T) {
	s, client := newStore(t, false, record("5", 3, "uid-web"))
	rejectStaleUpdates(t, client)
	s.cached = frozenCache(t)
	got, err := s.Update(t.Context(), web, addPod)
	require.NoError(t, err)
	require.Equal(t, 4, got.Rounds[0].Pods)
	require.EqualValues(t, 4, getRecord(t, client).Status.Rounds[0].Pods)
}

func TestStoreUpdate_RecreatesDeletedRecord(t *testing.T) {
	s, client := newStore(t, false, record("5", 3, "uid-web"))
	s.cached = frozenCache(t, record("5", 3, "uid-web"))
	require.NoError(t, client.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), "deployment-web", metav1.DeleteOptions{}))
	got, err := s.Update(t.Context(), web, addPod)
	require.NoError(t, err)
	require.Equal(t, 1, got.Rounds[0].Pods)
	require.EqualValues(t, 1, getRecord(t, client).Status.Rounds[0].Pods)
}

func TestStoreUpdate_AdoptsRecordOfWorkload(t *testing.T) {
	for _, tc := range []struct {
		name  string
		owner string
		pods  int
	}{
		{name: "owned by the workload", owner: "uid-web", pods: 3},
		{name: "no owner", pods: 3},
		{name: "owned by a former workload of the name", owner: "uid-before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, client := newStore(t, false, record("5", 3, tc.owner))
			state, err := s.State(web)
			require.NoError(t, err)
			require.Equal(t, tc.pods > 0, len(state.Rounds) == 1, "that of a workload that had the name before is not ours")
			_, err = s.Update(t.Context(), web, addPod)
			require.NoError(t, err)
			r := getRecord(t, client)
			require.EqualValues(t, tc.pods+1, r.Status.Rounds[0].Pods)
			require.Equal(t, []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web",
				Controller: new(false), BlockOwnerDeletion: new(false),
			}}, r.OwnerReferences)
		})
	}
}

func TestStoreUpdate_SkipsUnchangedAndDryRunWrites(t *testing.T) {
	for _, tc := range []struct {
		name   string
		dryRun bool
		change func(rollout.State) rollout.State
		pods   int // in the returned state
	}{
		{name: "unchanged state", change: func(s rollout.State) rollout.State { return s }, pods: 3},
		{name: "dry run", dryRun: true, change: addPod, pods: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, client := newStore(t, tc.dryRun, record("5", 3, "uid-web"))
			got, err := s.Update(t.Context(), web, tc.change)
			require.NoError(t, err)
			require.Equal(t, tc.pods, got.Rounds[0].Pods)
			for _, a := range client.Actions() {
				require.NotContains(t, []string{"create", "update", "patch", "delete"}, a.GetVerb())
			}
			state, err := s.State(web)
			require.NoError(t, err)
			require.Equal(t, 3, state.Rounds[0].Pods, "nothing is stored")
		})
	}
}

func TestStoreUpdate_RefusesUnreadableRecord(t *testing.T) {
	bad := record("5", 3, "uid-web")
	bad.Annotations = map[string]string{vpav1.UnreadableAnnotation: "status.rounds: wrong type"}
	s, client := newStore(t, false, bad)
	_, err := s.State(web)
	require.ErrorIs(t, err, sizing.ErrUnknown)
	_, err = s.Update(t.Context(), web, addPod)
	require.ErrorIs(t, err, sizing.ErrUnknown)
	require.ErrorContains(t, err, "shop/deployment-web")
	require.Empty(t, client.Actions())
}

func TestStoreUpdate_GivesUpAfterRepeatedConflicts(t *testing.T) {
	s, client := newStore(t, false, record("5", 3, "uid-web"))
	tries := 0
	client.PrependReactor("update", "sizingrecords", func(ktesting.Action) (bool, runtime.Object, error) {
		tries++
		return true, nil, apierrors.NewConflict(resource, "deployment-web", errors.New("modified"))
	})
	_, err := s.Update(t.Context(), web, addPod)
	require.EqualError(t, err, "write SizingRecord shop/deployment-web: too many conflicting updates")
	require.Equal(t, attempts, tries)
	require.EqualValues(t, 3, getRecord(t, client).Status.Rounds[0].Pods)
}

// Most workloads never have a record.
func TestStore_KeepsNothingForReads(t *testing.T) {
	s, client := newStore(t, false)
	for i := range 100 {
		_, err := s.State(workload(fmt.Sprintf("job-%d", i), "uid"))
		require.NoError(t, err)
	}
	require.Empty(t, s.written)
	_, err := s.Update(t.Context(), web, addPod)
	require.NoError(t, err)
	require.Len(t, s.written, 1)
	require.NoError(t, client.LoadlineV1alpha1().SizingRecords("shop").Delete(t.Context(), "deployment-web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.written) == 0
	}, time.Minute, time.Millisecond)
}

func TestStoreChanges_CountsAllWrites(t *testing.T) {
	s, client := newStore(t, false, record("5", 3, "uid-web"))
	require.Eventually(t, func() bool { return s.Changes() == 1 }, time.Minute, time.Millisecond, "the one that was there")
	records := client.LoadlineV1alpha1().SizingRecords("shop")
	_, err := records.Update(t.Context(), record("6", 4, "uid-web"), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Changes() == 2 }, time.Minute, time.Millisecond, "by somebody else")

	_, err = s.Update(t.Context(), web, func(s rollout.State) rollout.State { return s })
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Changes(), "nothing was written")
	_, err = s.State(web)
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Changes())

	written := s.Changes()
	_, err = s.Update(t.Context(), web, addPod)
	require.NoError(t, err)
	require.Greater(t, s.Changes(), written, "at once, whatever the cache has heard")
	require.Eventually(t, func() bool { return s.Changes() == written+2 }, time.Minute, time.Millisecond, "when the cache hears of it")
	require.NoError(t, records.Delete(t.Context(), "deployment-web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return s.Changes() == written+3 }, time.Minute, time.Millisecond, "when it is gone")
}

// An admission webhook or API server may not answer a write.
func TestStore_HangingWriteDoesNotBlockOthers(t *testing.T) {
	s, client := newStore(t, false, record("5", 3, "uid-web"))
	rejectStaleUpdates(t, client)
	s.cached = frozenCache(t, record("5", 3, "uid-web"))
	synctest.Test(t, func(t *testing.T) {
		hanging := true
		s.client = hangingOnce{client, func(ctx context.Context) error {
			if !hanging {
				return nil
			}
			hanging = false
			<-ctx.Done()
			return ctx.Err()
		}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		delete(s.written, NameOf(web.Key).ObjectName)
		var writing sync.WaitGroup
		began := time.Now()
		writing.Go(func() {
			_, err := s.Update(ctx, web, addPod)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, WriteTimeout, time.Since(began), "every write has a deadline")
		})
		synctest.Wait()

		state, err := s.State(web)
		require.NoError(t, err)
		require.Equal(t, 3, state.Rounds[0].Pods)
		require.Zero(t, time.Since(began), "a read does not wait")
		got, err := s.Update(ctx, web, addPod)
		require.NoError(t, err)
		require.Equal(t, 4, got.Rounds[0].Pods)
		require.LessOrEqual(t, time.Since(began), turnWait, "another write does not wait for the one that hangs")
		writing.Wait()
		state, err = s.State(web)
		require.NoError(t, err)
		require.Equal(t, 4, state.Rounds[0].Pods)
	})
}

type hangingOnce struct {
	versioned.Interface
	wait func(context.Context) error
}

func (h hangingOnce) LoadlineV1alpha1() typed.LoadlineV1alpha1Interface {
	return hangingGroup{h.Interface.LoadlineV1alpha1(), h.wait}
}

type hangingGroup struct {
	typed.LoadlineV1alpha1Interface
	wait func(context.Context) error
}

func (h hangingGroup) SizingRecords(namespace string) typed.SizingRecordInterface {
	return hangingRecords{h.LoadlineV1alpha1Interface.SizingRecords(namespace), h.wait}
}

type hangingRecords struct {
	typed.SizingRecordInterface
	wait func(context.Context) error
}

func (h hangingRecords) Update(ctx context.Context, r *loadlinev1alpha1.SizingRecord, o metav1.UpdateOptions) (*loadlinev1alpha1.SizingRecord, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.SizingRecordInterface.Update(ctx, r, o)
}

func TestStoreUpdate_ConcurrentWritersLoseNothing(t *testing.T) {
	s, client := newStore(t, false, record("5", 0, "uid-web"))
	var mu sync.Mutex
	version := 5
	client.PrependReactor("update", "sizingrecords", func(a ktesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		r := a.(ktesting.UpdateAction).GetObject().(*loadlinev1alpha1.SizingRecord)
		if r.ResourceVersion != fmt.Sprint(version) {
			return true, nil, apierrors.NewConflict(resource, r.Name, errors.New("modified"))
		}
		version++
		r = r.DeepCopy()
		r.ResourceVersion = fmt.Sprint(version)
		return true, r, client.Tracker().Update(loadlinev1alpha1.SchemeGroupVersion.WithResource("sizingrecords"), r, "shop")
	})
	var writing sync.WaitGroup
	for range 10 {
		writing.Go(func() {
			for range 9 { // fewer than the fake watch buffers
				_, err := s.Update(t.Context(), web, addPod)
				require.NoError(t, err)
			}
		})
	}
	writing.Wait()
	require.EqualValues(t, 90, getRecord(t, client).Status.Rounds[0].Pods)
}
