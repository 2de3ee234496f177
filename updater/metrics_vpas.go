package updater

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// vpaCounter is a counter with series for each VPA, also before the first count. It uses a tenth of
// the 800 bytes of a prometheus.Counter. It is safe for concurrent use.
type vpaCounter struct {
	desc    *prometheus.Desc
	hasMode bool // with label update_mode

	mu     sync.Mutex
	counts map[cache.ObjectName][]vpaCount // by size and mode that the VPA had
}

type vpaCount struct {
	mode  vpav1.UpdateMode
	size  uint8
	count uint32
}

func newVPACounter(name, help string, hasMode bool) *vpaCounter {
	labels := []string{"vpa_size_log2"}
	if hasMode {
		labels = append(labels, "update_mode")
	}
	labels = append(labels, "vpa_name", "vpa_namespace")
	return &vpaCounter{
		desc: prometheus.NewDesc(prometheus.BuildFQName("vpa", "updater", name), help, labels, nil), hasMode: hasMode,
		counts: map[cache.ObjectName][]vpaCount{},
	}
}

// Add adds n to the counter of a VPA. 0 makes it visible.
func (c *vpaCounter) Add(vpa cache.ObjectName, pods int, mode vpav1.UpdateMode, n uint32) {
	if !c.hasMode {
		mode = ""
	}
	size := uint8(sizeOf(pods))
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts[vpa]
	for i := range counts {
		if counts[i].size == size && counts[i].mode == mode {
			counts[i].count += n
			return
		}
	}
	c.counts[vpa] = append(counts, vpaCount{mode, size, n})
}

func (c *vpaCounter) Forget(vpa cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.counts, vpa)
}

func (c *vpaCounter) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

func (c *vpaCounter) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	var all []prometheus.Metric
	for vpa, counts := range c.counts {
		for _, one := range counts {
			labels := []string{strconv.Itoa(int(one.size))}
			if c.hasMode {
				labels = append(labels, string(one.mode))
			}
			all = append(all, prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(one.count), append(labels, vpa.Name, vpa.Namespace)...))
		}
	}
	c.mu.Unlock()
	for _, m := range all {
		to <- m
	}
}
