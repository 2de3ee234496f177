package podqueue

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

func TestNamespaceQueue_ServesNamespacesInTurn(t *testing.T) {
	q := newNamespaceQueue()
	for _, name := range []string{"a/1", "a/2", "b/1", "a/3", "c/1", "b/2"} {
		q.Push(cache.NewObjectName(name[:1], name[2:]))
	}
	var served []string
	for q.Len() > 0 {
		served = append(served, q.Pop().String())
	}
	require.Equal(t, []string{"a/1", "b/1", "c/1", "a/2", "b/2", "a/3"}, served)
}
