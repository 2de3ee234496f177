package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

// shareWindow is the range of the queries for throttling and CPU pressure. After a change they have
// a result only then.
const shareWindow = 5 * time.Minute

// fakeCounters is a Prometheus that scrapes kubelets. Two minutes after its start, pods of the
// workload throttled are throttled, and pods of waiting wait for CPU, for nine tenths of the time.
type fakeCounters struct{ start time.Time }

var queriedPods = regexp.MustCompile(`namespace="([^"]+)", pod=~"([^"]+)"`)

func (c *fakeCounters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.ParseFloat(r.FormValue("time"), 64)
	asked := queriedPods.FindStringSubmatch(r.FormValue("query"))
	if err != nil || asked == nil || r.URL.Path != "/api/v1/query" {
		http.Error(w, "this server answers only what updaters ask", http.StatusBadRequest)
		return
	}
	at := time.UnixMilli(int64(seconds * 1000))
	type series struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	result := []series{}
	for _, pod := range strings.Split(asked[2], "|") {
		throttled, waiting := 0.1, 0.1
		if at.After(c.start.Add(2 * time.Minute)) {
			if strings.HasPrefix(pod, "throttled-") {
				throttled = 0.9
			}
			if strings.HasPrefix(pod, "waiting-") {
				waiting = 0.9
			}
		}
		for counter, rate := range map[string]float64{
			"container_cpu_cfs_periods_total":                                           10,
			"container_cpu_cfs_throttled_periods_total":                                 10 * throttled,
			"container_pressure_cpu_waiting_seconds_total":                              waiting,
			"container_pressure_cpu_waiting_seconds_total from the start of the window": waiting,
		} {
			labels := map[string]string{"loadline_counter": counter, "namespace": asked[1], "pod": pod, "container": "app", "id": "/kubepods/" + pod, "job": "kubelet"}
			result = append(result, series{labels, [2]any{seconds, fmt.Sprint(rate)}})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
}

// sharesUpdater is an updater with such a Prometheus. It and its policy are shared by three
// workloads.
var sharesUpdater struct {
	sync.Once
	updater *harness.Daemon
}

// reducedCPUScenario is the setup of a workload with reduced CPU requests, and reduced limits if it
// has any.
func reducedCPUScenario(name, cpuLimit string) *longScenario {
	return &longScenario{begin: func(t *testing.T) (harness.Workload, []corev1.Pod) {
		w := newWorkload(t, "shares", 2)
		w.Name, w.Containers[0].CPULimit = name, cpuLimit
		sharesUpdater.Do(func() {
			server := httptest.NewServer(&fakeCounters{time.Now()}) // until the end of the process
			sharesUpdater.updater = ownUpdater(t, w.Namespace, "shares", "--prometheus-address="+server.URL)
			createPolicy(t, w.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation, func(s *loadlinev1alpha1.SizingPolicySpec) {
				s.VPAs = new(loadlinev1alpha1.VPAsNever)
			})
		})
		startWorkload(t, w)
		createVPAWithTarget(t, w, vpav1.UpdateModeInPlaceOrRecreate, smaller)
		return w, []corev1.Pod{*awaitReduced(t, w)}
	}}
}

var (
	throttledScenario = reducedCPUScenario("throttled", "200m")
	waitingScenario   = reducedCPUScenario("waiting", "")
	harmlessScenario  = reducedCPUScenario("fine", "200m")
)

func TestRevert_AfterThrottling(t *testing.T) {
	parallelTest(t)
	w, changed := throttledScenario.begun(t)
	requireReverted(t, w, &changed[0], "Throttled", resizedAt(t, &changed[0]).Add(shareWindow))
	requireNotRepeated(t, sharesUpdater.updater, w)
}

func TestRevert_AfterCPUPressure(t *testing.T) {
	parallelTest(t)
	w, changed := waitingScenario.begun(t)
	requireReverted(t, w, &changed[0], "Pressure", resizedAt(t, &changed[0]).Add(shareWindow))
	requireNotRepeated(t, sharesUpdater.updater, w)
}

func TestRevert_HarmlessChangeStays(t *testing.T) {
	parallelTest(t)
	w, changed := harmlessScenario.begun(t)
	within(t, longestWait+shareWindow, "the next pod is changed", func() error {
		if n := len(podsWithCPU(t, w, "60m")); n != 2 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	for _, pod := range pods(t, w) {
		if pod.UID != changed[0].UID {
			require.False(t, resizedAt(t, &pod).Before(resizedAt(t, &changed[0]).Add(shareWindow)), "before it was known that the first one does well")
		}
	}
	record := awaitRecord(t, w, "no harm", func(s *loadlinev1alpha1.SizingRecordStatus) bool { return len(s.Rounds) == 1 })
	require.Zero(t, record.Status.ConsecutiveReverts)
	require.Empty(t, record.Status.Reverted)
}
