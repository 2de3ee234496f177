package recommender

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/explanation"
	"loadline.dev/loadline/pkg/process"
)

func (w *world) explain() *explanation.VPA {
	w.t.Helper()
	answer, err := w.loop.Explain(w.t.Context(), "ns", "web")
	require.NoError(w.t, err)
	require.IsType(w.t, &explanation.VPA{}, answer)
	return answer.(*explanation.VPA)
}

func TestExplain_StepsMatchPublishedBounds(t *testing.T) {
	for _, name := range append(recipe.Names(), "loadline:cpu=shared", "loadline:memory=following") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startedWorld(t, name)
			for m := range 60 * 5 {
				cpu, mib := usageAt(m + 600)
				w.setUsage("web-1", "a", cpu, mib)
				w.iterate(1)
			}
			c := w.explain().Containers[0]
			want := convert.Bounds(w.recommendations("web")[0])
			for k := range resources.Kind(resources.Kinds) {
				of := c.Resource(k)
				last := func(steps []explanation.Step) resources.Amount {
					return resources.FromFloat(steps[len(steps)-1].Amount)
				}
				require.Equal(t, want.Target.Value(k), last(of.Target), "%s %v", k, of.Target)
				require.Equal(t, want.Lower.Value(k), last(of.LowerBound), "%s %v", k, of.LowerBound)
				require.Equal(t, want.Upper.Value(k), last(of.UpperBound), "%s %v", k, of.UpperBound)
			}
			require.Equal(t, w.now, c.LastSample)
			require.Equal(t, &w.recommendations("web")[0], c.Published)
		})
	}
}

// Environment, arguments, labels and other VPAs must not appear in the explanation.
func TestExplain_MatchesGolden(t *testing.T) {
	for _, tc := range []struct {
		name    string
		recipe  string
		minutes int
		prepare func(*world)
	}{
		{name: "default", minutes: 60},
		{name: "sketch", recipe: "loadline", minutes: 60},
		{name: "separate-limit", recipe: "loadline:memory=following", minutes: 60},
		{name: "few-points", recipe: "attune", minutes: 30},
		{name: "invalid-recipe", recipe: "soup" + strings.Repeat("!", 2000), minutes: 1},
		{name: "held", minutes: 60 * 12, prepare: func(w *world) {
			w.iterate(2)
			require.NoError(w.t, w.vpas.AutoscalingV1().VerticalPodAutoscalerCheckpoints("ns").Delete(w.t.Context(), "web-a", metav1.DeleteOptions{}))
			w.start()
			w.setUsage("web-1", "a", 100, 100)
			w.iterate(1)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podWithCPULimit("750m")
			pod.Labels["secret"] = "hidden"
			c := &pod.Spec.Containers[0]
			c.Env, c.Args = []corev1.EnvVar{{Name: "SECRET", Value: "hidden"}}, []string{"--token=hidden"}
			c.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
			w := newWorld(t, deployment("web"), deployment("db"), pod, webVPA(tc.recipe), aVPA("hidden", "db", time.Hour))
			w.config.Output.Tolerance = 0
			w.start()
			w.simulateUsage(600, 600+tc.minutes)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			text, err := json.Marshal(w.explain())
			require.NoError(t, err)
			require.NotContains(t, string(text), "hidden")
			require.Less(t, len(text), 8<<10)
			var indented bytes.Buffer
			require.NoError(t, json.Indent(&indented, text, "", "  "))
			file := filepath.Join("testdata/explain", tc.name+".json")
			if *update {
				require.NoError(t, os.WriteFile(file, indented.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), indented.String())
		})
	}
}

// For the race detector.
func TestExplain_RunsConcurrentlyWithLoop(t *testing.T) {
	for _, name := range []string{"vpa", "loadline", "attune", "autopilot"} {
		t.Run(name, func(t *testing.T) {
			w := startedWorld(t, name)
			w.simulateUsage(600, 660)
			var explaining sync.WaitGroup
			stop, answers := make(chan struct{}), make(chan error, 4)
			for range cap(answers) {
				explaining.Go(func() {
					for {
						select {
						case <-stop:
							answers <- nil
							return
						default:
						}
						if _, err := w.loop.Explain(t.Context(), "ns", "web"); err != nil {
							answers <- err
							return
						}
					}
				})
			}
			w.simulateUsage(660, 680)
			w.create(aPod("web-2", "web", "a", "b"))
			w.setUsage("web-2", "b", 300, 300)
			w.simulateUsage(680, 700)
			w.loop.HandleOOMs(t.Context(), w.now)
			close(stop)
			explaining.Wait()
			for range cap(answers) {
				require.NoError(t, <-answers)
			}
			require.Len(t, w.explain().Containers, 2)
		})
	}
}

func TestExplain_RejectsUnknownVPA(t *testing.T) {
	w := startedWorld(t, "")
	w.simulateUsage(600, 601)
	_, err := w.loop.Explain(t.Context(), "ns", "other")
	require.ErrorIs(t, err, explanation.ErrUnknown)
}

func TestExplain_RequiresLeadership(t *testing.T) {
	w := newWorld(t, deployment("web"), aPod("web-1", "web", "a"), aVPA("web", "web", time.Hour))
	w.config.Interval = 10 * time.Millisecond
	w.setUsage("web-1", "a", 300, 200)
	w.clock = time.Now
	p := w.parts()
	status := func() int {
		answer := httptest.NewRecorder()
		p.explanations.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, explanation.VPAPath+"?namespace=ns&name=web", nil))
		return answer.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, status())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runElected(ctx, w.config, process.OS{}, p) }()
	require.Eventually(t, func() bool { return status() == http.StatusOK }, time.Minute, 5*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, http.StatusServiceUnavailable, status())
}
