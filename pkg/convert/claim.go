package convert

import (
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/ownership"
)

// Claim reads what decides which of several VPAs controls a pod. Selects is left
// nil; a VPA without target claims the workload without kind and name.
func Claim(vpa *vpav1.VerticalPodAutoscaler) ownership.VPA {
	claim := ownership.VPA{
		Namespace: vpa.Namespace, Name: vpa.Name, Created: vpa.CreationTimestamp.Time,
		// What cannot be read may be a boost.
		Idle: Mode(vpa) == vpav1.UpdateModeOff && !HasBoost(vpa) && Unreadable(vpa) == "",
	}
	if ref := vpa.Spec.TargetRef; ref != nil {
		claim.TargetKind, claim.TargetName, claim.TargetVersion = ref.Kind, ref.Name, ref.APIVersion
	}
	return claim
}
