package checkpoints

import "loadline.dev/loadline/pkg/checkpoint"

// maxNamespaceBytes is how much of etcd, which has 2 GiB by default, the checkpoints of a namespace may
// take. It is room for about 10,000 containers.
const maxNamespaceBytes = 32 << 20

// assumedSize is the size of a checkpoint that this process has not written.
const assumedSize = 3 * checkpoint.MetadataSize

// quota is the size of the checkpoints of each namespace.
type quota struct {
	sizes  map[name]int
	totals map[string]int // by namespace
}

func newQuota() quota { return quota{map[name]int{}, map[string]int{}} }

// reserve accounts for a write and returns true, unless the checkpoint grows beyond maxNamespaceBytes of
// its namespace.
func (q *quota) reserve(key name, size int) bool {
	more := size - q.sizes[key]
	if more > 0 && q.totals[key.namespace]+more > maxNamespaceBytes {
		return false
	}
	q.sizes[key] = size
	q.totals[key.namespace] += more
	return true
}

// keep accounts for exactly the checkpoints that are stored.
func (q *quota) keep(stored map[name]bool) {
	sizes := q.sizes
	*q = newQuota()
	for key := range stored {
		size, known := sizes[key]
		if !known {
			size = assumedSize
		}
		q.sizes[key] = size
		q.totals[key.namespace] += size
	}
}
