package checkpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/recommender/model"
)

func TestSave_LimitsTheCheckpointsOfANamespace(t *testing.T) {
	b := newBench()
	first := b.holds("first", map[string]checkpoint.Content{"a": content(10)})
	require.NoError(t, b.save(t, now(), first).Err)
	require.NoError(t, b.cache.Add(b.stored(t, "first-a")))
	require.True(t, b.reserve(name{"ns", "others"}, maxNamespaceBytes-b.Saver.stored.totals["ns"]))

	b.holds("first", map[string]checkpoint.Content{"a": content(9)})
	full, other := b.holds("full", map[string]checkpoint.Content{"a": content(10)}), b.holds("other", map[string]checkpoint.Content{"a": content(10)})
	other.Object.Namespace = "quiet"
	r := b.save(t, now(), first, full, other)
	require.ErrorIs(t, r.Err, ErrNamespaceFull)
	require.Equal(t, 2, r.Written, "the checkpoint that is stored, and that of another namespace")

	_, err := b.Collect(t.Context(), func(*vpav1.VerticalPodAutoscalerCheckpoint) Disposition { return Keep })
	require.NoError(t, err)
	require.NoError(t, b.save(t, now().Add(time.Hour), []*model.VPA{full}...).Err, "the others are gone")
}

func TestQuota_CountsStoredCheckpoints(t *testing.T) {
	q := newQuota()
	a, unknown := name{"ns", "a"}, name{"ns", "unknown"}
	require.True(t, q.reserve(a, 100))
	require.True(t, q.reserve(a, 50))
	require.Equal(t, 50, q.totals["ns"])
	q.keep(map[name]bool{a: true, unknown: true})
	require.Equal(t, 50+assumedSize, q.totals["ns"])
	require.False(t, q.reserve(name{"ns", "b"}, maxNamespaceBytes))
	require.True(t, q.reserve(name{"other", "b"}, maxNamespaceBytes))
	q.keep(nil)
	require.Empty(t, q.totals)
}

// A namespace that has used up its write limit costs no further requests in a save, and loses nothing.
func TestSave_LeavesANamespaceWhoseWritesAreLimited(t *testing.T) {
	b := newBench()
	b.Workers = 1
	limited, tried := true, 0
	b.client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() != "ns" || !limited {
			return false, nil, nil
		}
		tried++
		return true, nil, apierrors.NewTooManyRequestsError("not sent")
	})
	all := make([]*model.VPA, 0, 6)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, b.holds(name, map[string]checkpoint.Content{"x": content(1)}))
	}
	other := b.holds("other", map[string]checkpoint.Content{"x": content(1)})
	other.Object.Namespace = "quiet"
	r := b.save(t, now(), append(all, other)...)
	require.Equal(t, 1, tried)
	require.Equal(t, 1, r.Written)
	require.Equal(t, 4, r.Late)
	limited = false
	require.Equal(t, 5, b.save(t, now().Add(time.Hour), all...).Written)
}
