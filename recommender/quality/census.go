package quality

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/recommender/model"
)

// state is what VPAs are counted by.
type state struct {
	mode                                        vpav1.UpdateMode
	hasRecommendation, matchesPods, unsupported bool
}

// Census publishes the number of VPAs by state, with a 0 for each combination
// that does not occur. The labels of gauge are update_mode, has_recommendation,
// api, matches_pods and unsupported_config.
func Census(gauge *prometheus.GaugeVec, vpas []*model.VPA) {
	counts := map[state]int{}
	for _, v := range vpas {
		counts[state{convert.Mode(v.Object), v.Published.Recommended, v.Pods() > 0, v.TargetError != nil}]++
	}
	for _, mode := range []vpav1.UpdateMode{
		vpav1.UpdateModeOff, vpav1.UpdateModeInitial, vpav1.UpdateModeRecreate,
		vpav1.UpdateModeAuto, vpav1.UpdateModeInPlaceOrRecreate, vpav1.UpdateModeInPlace,
	} {
		for bits := range 8 {
			s := state{mode, bits&1 != 0, bits&2 != 0, bits&4 != 0}
			for _, api := range []string{"v1beta1", "v1beta2", "v1"} {
				n := 0
				if api == "v1" { // the only version that is served
					n = counts[s]
				}
				gauge.WithLabelValues(string(mode), strconv.FormatBool(s.hasRecommendation), api,
					strconv.FormatBool(s.matchesPods), strconv.FormatBool(s.unsupported)).Set(float64(n))
			}
		}
	}
}
