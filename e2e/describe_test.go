package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// resizedPods parses the Resized events of kubectl describe. It returns the sum of reported pods,
// the number of events, and all printed events.
func resizedPods(t *testing.T, object ...string) (pods, events int, printed string, err error) {
	t.Helper()
	out, err := cluster.KubectlOutput(t.Context(), append([]string{"describe"}, object...)...)
	if err != nil {
		return 0, 0, "", err
	}
	_, printed, _ = strings.Cut(out, "\nEvents:")
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[1] != "Resized" {
			continue
		}
		times, changed := 1, 0
		if _, count, counted := strings.Cut(line, "(x"); counted {
			_, err = fmt.Sscan(count, &times)
		}
		_, message, _ := strings.Cut(line, "vpa-updater")
		if _, scanErr := fmt.Sscanf(strings.TrimSpace(message), "Resized %d pod", &changed); err != nil || scanErr != nil {
			return 0, 0, printed, fmt.Errorf("event %q: %w", line, errors.Join(err, scanErr))
		}
		pods, events = pods+times*changed, events+times
	}
	return pods, events, printed, nil
}

// Resizes the pods of two workloads one by one, in two rounds. Each round is one event on the
// policy and on each VPA, or two if a slow control plane interrupts the round.
func TestDescribe_ShowsResizedEventsOfEachRound(t *testing.T) {
	parallelTest(t)
	web := newWorkload(t, "described", 3)
	api := web
	api.Name, api.Replicas = "api", 2
	startWorkload(t, web)
	startWorkload(t, api)
	createPolicy(t, web.Namespace, loadlinev1alpha1.RolloutModeAuto, withShortObservation, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.VPAs = new(loadlinev1alpha1.VPAsNever)
		s.Rollout.Cooldown, s.Rollout.MaxConcurrent = &metav1.Duration{}, new(int32(0))
	})
	requireEvents := func(rounds int) {
		t.Helper()
		for _, tc := range []struct {
			object []string
			pods   int // of a round
		}{
			{object: []string{"sizingpolicy", web.Namespace}, pods: 5},
			{object: []string{"-n", web.Namespace, "vpa", web.Name}, pods: 3},
			{object: []string{"-n", api.Namespace, "vpa", api.Name}, pods: 2},
		} {
			within(t, sharingRound, fmt.Sprintf("describe %s shows the round", strings.Join(tc.object, " ")), func() error {
				pods, events, printed, err := resizedPods(t, tc.object...)
				if err == nil && (pods != rounds*tc.pods || events > 2*rounds) {
					err = fmt.Errorf("%d events report %d pods:%s", events, pods, printed)
				}
				return err
			})
		}
	}
	createVPAWithTarget(t, web, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	createVPAWithTarget(t, api, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitSized(t, web, "60m")
	awaitSized(t, api, "60m")
	requireEvents(1)

	setTarget(t, web, larger)
	setTarget(t, api, larger)
	awaitSized(t, web, "300m")
	awaitSized(t, api, "300m")
	requireEvents(2)
}
