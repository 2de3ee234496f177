package target

import (
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
)

// ClaimOf reads what decides which of several VPAs controls a pod. Selects is left
// nil; a VPA without target claims the workload without kind and name.
func ClaimOf(vpa *vpav1.VerticalPodAutoscaler) Claim {
	claim := Claim{
		Namespace: vpa.Namespace, Name: vpa.Name, Created: vpa.CreationTimestamp.Time,
		// What cannot be read may be a boost.
		Idle: convert.Mode(vpa) == vpav1.UpdateModeOff && !convert.HasBoost(vpa) && convert.Unreadable(vpa) == "",
	}
	if ref := vpa.Spec.TargetRef; ref != nil {
		claim.TargetKind, claim.TargetName, claim.TargetVersion = ref.Kind, ref.Name, ref.APIVersion
	}
	return claim
}
