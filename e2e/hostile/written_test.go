package hostile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
)

// written returns the total size of all object versions written by the programs, which etcd keeps
// until compaction, and a summary by resource and account.
func written(t *testing.T) (sum int64, text string) {
	t.Helper()
	sizes := map[string]int64{}
	require.NoError(t, cluster.Written(func(account, resource string, size int) {
		require.Positive(t, size, "the audit log has no object of %s", resource)
		sum, sizes[resource+" by "+account] = sum+int64(size), sizes[resource+" by "+account]+int64(size)
	}))
	require.NotEmpty(t, sizes, "the audit log has nothing that a program wrote")
	var parts []string
	for _, by := range slices.Sorted(maps.Keys(sizes)) {
		parts = append(parts, fmt.Sprintf("%s %d KiB", by, sizes[by]>>10))
	}
	return sum, strings.Join(parts, ", ")
}

// reviews are the API server's counters of webhook requests, and the size of its storage.
type reviews struct {
	all, slow, failed int
	stored            int64 // bytes
}

func countReviews(t *testing.T) (c reviews) {
	t.Helper()
	text, err := cluster.Kube.(*kubernetes.Clientset).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	fast := 0
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "{")
		ours := strings.Contains(line, `name="vpa.k8s.io"`)
		value := func() int {
			f, err := strconv.ParseFloat(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:len(line)-1], 64)
			require.NoError(t, err)
			return int(f)
		}
		switch {
		case name == "apiserver_storage_size_bytes":
			c.stored += int64(value())
		case ours && name == "apiserver_admission_webhook_admission_duration_seconds_count":
			c.all += value()
		case ours && name == "apiserver_admission_webhook_admission_duration_seconds_bucket" && strings.Contains(line, `le="1"`):
			fast += value()
		case ours && name == "apiserver_admission_webhook_fail_open_count":
			c.failed += value()
		}
	}
	require.NotZero(t, c.all, "the API server counts no reviews")
	c.slow = c.all - fast
	return c
}
