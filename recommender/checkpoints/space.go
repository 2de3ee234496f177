package checkpoints

import "loadline.dev/loadline/pkg/checkpoint"

const (
	// maxNamespaceBytes is the limit of the checkpoints of a namespace in etcd, which has 2 GiB by
	// default. It is room for about 10,000 containers.
	maxNamespaceBytes = 32 << 20
	// maxPodBytes is the limit for each running pod, if all together exceed maxNamespaceBytes.
	maxPodBytes = 16 << 10
	// maxRewriteBytes is the size up to which a stored checkpoint is rewritten in a full namespace.
	maxRewriteBytes = 16 << 10
	// assumedSize is the size of a checkpoint that this process has not written.
	assumedSize = 3 * checkpoint.MetadataSize
)

// space is the size of the checkpoints of each namespace.
type space struct {
	sizes  map[name]int
	totals map[string]int // by namespace
}

func newSpace() space { return space{map[name]int{}, map[string]int{}} }

// reserve accounts for a write and returns true, unless the checkpoint grows beyond the limit of
// its namespace.
func (s *space) reserve(key name, size, limit int, stored bool) bool {
	more := size - s.sizes[key]
	if more > 0 && s.totals[key.namespace]+more > limit && (!stored || size > maxRewriteBytes) {
		return false
	}
	s.sizes[key] = size
	s.totals[key.namespace] += more
	return true
}

// keep accounts for exactly the checkpoints that are stored.
func (s *space) keep(stored map[name]bool) {
	sizes := s.sizes
	*s = newSpace()
	for key := range stored {
		size, known := sizes[key]
		if !known {
			size = assumedSize
		}
		s.sizes[key] = size
		s.totals[key.namespace] += size
	}
}
