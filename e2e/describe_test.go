package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
)

// resizedEvents returns the Resized events that kubectl describe prints for an object, without the age.
func resizedEvents(t *testing.T, object ...string) (events []string, err error) {
	t.Helper()
	out, err := cluster.KubectlOutput(t.Context(), append([]string{"describe"}, object...)...)
	if err != nil {
		return nil, err
	}
	_, printed, _ := strings.Cut(out, "\nEvents:")
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "Resized" {
			continue
		}
		event := strings.Join(fields[3:], " ") // type, reason and age come first
		if strings.HasPrefix(fields[3], "(x") {
			_, source, _ := strings.Cut(event, ") ")
			event = fields[3][1:] + " " + source
		}
		events = append(events, event)
	}
	return events, nil
}

// TestDescribe_ShowsOneResizedEventPerRound resizes the pods of two workloads, one pod of each at a time, in two
// rounds. kubectl describe shows each round once on the policy and once on each VPA, and equal rounds as one line.
func TestDescribe_ShowsOneResizedEventPerRound(t *testing.T) {
	together(t)
	web := plain(t, "described", 3)
	api := web
	api.Name, api.Replicas = "api", 2
	running(t, web)
	running(t, api)
	policyFor(t, web.Namespace, loadlinev1alpha1.RolloutModeAuto, observedFor, func(s *loadlinev1alpha1.SizingPolicySpec) {
		s.VPAs = new(loadlinev1alpha1.VPAsNever)
		s.Rollout.Cooldown, s.Rollout.MaxConcurrent = &metav1.Duration{}, new(int32(0))
	})
	requireOneEvent := func(times string) {
		t.Helper()
		for _, tc := range []struct {
			object []string
			event  string
		}{
			{object: []string{"sizingpolicy", web.Namespace}, event: "Resized 5 pods of 2 workloads in place: OutOfBounds 5"},
			{object: []string{"-n", web.Namespace, "vpa", web.Name}, event: "Resized 3 pods in place: OutOfBounds 3"},
			{object: []string{"-n", api.Namespace, "vpa", api.Name}, event: "Resized 2 pods in place: OutOfBounds 2"},
		} {
			within(t, sharingRound, fmt.Sprintf("describe %s shows the round", strings.Join(tc.object, " ")), func() error {
				events, err := resizedEvents(t, tc.object...)
				if err == nil && (len(events) != 1 || events[0] != times+"vpa-updater "+tc.event) {
					err = fmt.Errorf("events: %q", events)
				}
				return err
			})
		}
	}
	advise(t, web, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	advise(t, api, vpav1.UpdateModeInPlaceOrRecreate, smaller)
	awaitSized(t, web, "60m")
	awaitSized(t, api, "60m")
	requireOneEvent("")

	adviseAgain(t, web, larger)
	adviseAgain(t, api, larger)
	awaitSized(t, web, "300m")
	awaitSized(t, api, "300m")
	requireOneEvent("x2 ")
}
