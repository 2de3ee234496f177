package recommender

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/recommender/model"
)

func TestCountVPAs_SetsAllLabelCombinations(t *testing.T) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "x"}, []string{"update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config"})
	vpa := &model.VPA{Object: &vpav1.VerticalPodAutoscaler{}, Published: model.Published{Recommended: true}}
	countVPAs(gauge, []*model.VPA{vpa, vpa})
	require.Equal(t, 144, testutil.CollectAndCount(gauge))
	require.Equal(t, 2.0, testutil.ToFloat64(gauge.WithLabelValues("Recreate", "true", "v1", "false", "false")), "no mode counts as Recreate")
	countVPAs(gauge, []*model.VPA{{Object: vpa.Object, TargetError: fmt.Errorf("web: %w", target.ErrNotRead)}, {Object: vpa.Object, TargetError: errors.New("there is no web")}})
	require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("Recreate", "false", "v1", "false", "false")), "what nobody has read yet may well be supported")
	require.Equal(t, 1.0, testutil.ToFloat64(gauge.WithLabelValues("Recreate", "false", "v1", "false", "true")))
	countVPAs(gauge, nil)
	require.Zero(t, testutil.ToFloat64(gauge.WithLabelValues("Recreate", "true", "v1", "false", "false")))
}
