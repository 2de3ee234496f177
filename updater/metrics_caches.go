package updater

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cacheAges collects the age of each cache on every scrape, so that the gauge rises while an iteration hangs.
type cacheAges struct {
	ages atomic.Pointer[func() map[string]time.Duration] // by resource; nil: this replica does not lead
}

var cacheAge = prometheus.NewDesc("loadline_updater_cache_age_seconds",
	"Time since the watch of a resource last received anything, bookmarks included. Above 180 the updater evicts and restarts no pods.",
	[]string{"resource"}, nil)

// Show sets the source of the ages.
func (c *cacheAges) Show(ages func() map[string]time.Duration) { c.ages.Store(&ages) }

// Describe sends the description of the gauge.
func (c *cacheAges) Describe(to chan<- *prometheus.Desc) { to <- cacheAge }

// Collect sends the age of each cache.
func (c *cacheAges) Collect(to chan<- prometheus.Metric) {
	ages := c.ages.Load()
	if ages == nil {
		return
	}
	for resource, age := range (*ages)() {
		to <- prometheus.MustNewConstMetric(cacheAge, prometheus.GaugeValue, age.Seconds(), resource)
	}
}
