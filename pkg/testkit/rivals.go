package testkit

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// Rivals are VPAs that all target the Deployment "web".
type Rivals struct {
	Name string
	VPAs []*vpav1.VerticalPodAutoscaler
	// Webhook is the VPA for new pods, Updater the VPA for running pods. Empty means none.
	Webhook, Updater string
}

// AllRivals returns the cases in which webhook and updater must choose the same VPA, or none.
func AllRivals() []Rivals {
	const initial, recreate, off = vpav1.UpdateModeInitial, vpav1.UpdateModeRecreate, vpav1.UpdateModeOff
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	vpa := func(name string, age time.Duration, mode vpav1.UpdateMode) *vpav1.VerticalPodAutoscaler {
		v := VPA(name, Mode(mode))
		v.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		return v
	}
	boosted := vpa("old", time.Hour, off)
	boosted.Spec.StartupBoost = &vpav1.StartupBoost{CPU: &vpav1.GenericStartupBoost{Type: vpav1.StartupBoostTypeFactor, Factor: new(int32(2))}}
	young := vpa("young", time.Minute, recreate)
	all := func(vpas ...*vpav1.VerticalPodAutoscaler) []*vpav1.VerticalPodAutoscaler { return vpas }
	return []Rivals{
		{"the older changes new pods only", all(young, vpa("old", time.Hour, initial)), "old", ""},
		{"the older changes nothing", all(young, vpa("old", time.Hour, off)), "young", "young"},
		{"the older boosts new pods only", all(young, boosted), "old", ""},
		{"the younger changes new pods only", all(vpa("young", time.Minute, initial), vpa("old", time.Hour, recreate)), "old", "old"},
		{"both act", all(young, vpa("old", time.Hour, vpav1.UpdateModeInPlaceOrRecreate)), "old", "old"},
		{"equally old", all(vpa("b", time.Hour, recreate), vpa("a", time.Hour, recreate)), "a", "a"},
		{"equally old, the first changes new pods only", all(vpa("b", time.Hour, recreate), vpa("a", time.Hour, initial)), "a", ""},
		{"none acts", all(vpa("old", time.Hour, off), vpa("young", time.Minute, off)), "", ""},
	}
}
