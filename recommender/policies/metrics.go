package policies

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of a Keeper.
type Metrics struct {
	VPAs      *prometheus.CounterVec // made VPAs by what was done with them
	Workloads *prometheus.GaugeVec   // by policy, mode and phase
	Degraded  *prometheus.GaugeVec   // workloads by policy
	Cores     *prometheus.GaugeVec   // that would be saved, by policy
	Bytes     *prometheus.GaugeVec   // that would be saved, by policy
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"policy"}, labels...))
	}
	m := &Metrics{
		VPAs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loadline_recommender_made_vpas_total",
			Help: "VPAs made for SizingPolicies, by what was done with them: made, changed, removed, refused, error.",
		}, []string{"result"}),
		Workloads: gauge("loadline_policy_workloads",
			"Workloads that a SizingPolicy is responsible for, by the mode that counts for them and the phase of their rollout.", "mode", "phase"),
		Degraded: gauge("loadline_policy_degraded", "Workloads of a SizingPolicy whose changes were taken back repeatedly."),
		Cores: gauge("loadline_policy_saved_cores",
			"CPU that the running pods of a SizingPolicy would request less than now with what is recommended, over the containers that need less."),
		Bytes: gauge("loadline_policy_saved_bytes",
			"Memory that the running pods of a SizingPolicy would request less than now with what is recommended, over the containers that need less."),
	}
	registry.MustRegister(m.VPAs, m.Workloads, m.Degraded, m.Cores, m.Bytes)
	return m
}

// forget takes away what is said of policies, before all of it is said anew.
func (m *Metrics) forget() {
	for _, g := range [...]*prometheus.GaugeVec{m.Workloads, m.Degraded, m.Cores, m.Bytes} {
		g.Reset()
	}
}
