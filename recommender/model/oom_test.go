package model

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

// vectorOOM is an OOM kill in the format of the conformance vectors.
type vectorOOM struct {
	Namespace, Pod, Container string
	MemoryBytes               int64
	Timestamp                 time.Time
}

func simplify(ooms []usage.OOM) []vectorOOM {
	list := []vectorOOM{}
	for _, o := range ooms {
		list = append(list, vectorOOM{
			Namespace: o.Container.Namespace, Pod: o.Container.Pod, Container: o.Container.Container,
			MemoryBytes: int64(o.Memory), Timestamp: o.At.UTC(),
		})
	}
	return list
}

func forEachVector(t *testing.T, kind string, use func(input, expected json.RawMessage)) {
	raw, err := os.ReadFile("../../testdata/vectors/recommender.json")
	require.NoError(t, err)
	var file struct {
		Vectors []struct {
			Kind            string
			Input, Expected json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	found := false
	for _, v := range file.Vectors {
		if v.Kind == kind {
			found = true
			use(v.Input, v.Expected)
		}
	}
	require.True(t, found)
}

func TestPodOOMs_MatchesVectors(t *testing.T) {
	forEachVector(t, "podUpdate", func(input, want json.RawMessage) {
		var in struct {
			Updates []struct{ Old, New *corev1.Pod }
		}
		var out struct{ OOMsPerUpdate [][]vectorOOM }
		require.NoError(t, json.Unmarshal(input, &in))
		require.NoError(t, json.Unmarshal(want, &out))
		for i, u := range in.Updates {
			require.Equal(t, out.OOMsPerUpdate[i], simplify(PodOOMs(u.Old, u.New)), "update %d", i)
			older, err := client.Trim(u.Old)
			require.NoError(t, err)
			newer, err := client.Trim(u.New)
			require.NoError(t, err)
			require.Equal(t, out.OOMsPerUpdate[i], simplify(PodOOMs(older.(*corev1.Pod), newer.(*corev1.Pod))), "trimmed update %d", i)
		}
	})
}

func TestEvictionOOMs_MatchesVectors(t *testing.T) {
	forEachVector(t, "evictionEvent", func(input, want json.RawMessage) {
		var in struct{ Event *corev1.Event }
		var out struct{ OOMs []vectorOOM }
		require.NoError(t, json.Unmarshal(input, &in))
		require.NoError(t, json.Unmarshal(want, &out))
		require.Equal(t, out.OOMs, simplify(EvictionOOMs(in.Event)))
	})
}

func TestEvictionOOMs_IgnoresInvalidEvents(t *testing.T) {
	event := func(change func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}}
		e.Annotations = map[string]string{offendingContainersAnnotation: "a", offendingUsageAnnotation: "1Mi", starvedResourceAnnotation: "memory"}
		change(e)
		return e
	}
	require.Len(t, EvictionOOMs(event(func(*corev1.Event) {})), 1)
	for _, tc := range []struct {
		name   string
		change func(*corev1.Event)
	}{
		{name: "other reason", change: func(e *corev1.Event) { e.Reason = "Killing" }},
		{name: "not a pod", change: func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" }},
		{name: "no annotations", change: func(e *corev1.Event) { e.Annotations = nil }},
		{name: "different lengths", change: func(e *corev1.Event) { e.Annotations[offendingContainersAnnotation] = "a,b" }},
		{name: "other resource", change: func(e *corev1.Event) { e.Annotations[starvedResourceAnnotation] = "ephemeral-storage" }},
		{name: "no quantity", change: func(e *corev1.Event) { e.Annotations[offendingUsageAnnotation] = "much" }},
		{name: "negative", change: func(e *corev1.Event) { e.Annotations[offendingUsageAnnotation] = "-5Mi" }},
		{name: "endless", change: func(e *corev1.Event) { e.Annotations[offendingUsageAnnotation] = "1e-2147483647" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Empty(t, EvictionOOMs(event(tc.change)))
		})
	}
}

// podStages returns the container statuses during two kills.
func podStages() map[string]*corev1.Pod {
	pod := func(state, last corev1.ContainerState, restarts int32, request, limit string) *corev1.Pod {
		p := aPod("p", nil, "a")
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2")},
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: state, LastTerminationState: last, RestartCount: restarts,
			Resources: &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
			}}}
		return p
	}
	end := func(id string, minutes int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", ContainerID: id, FinishedAt: metav1.NewTime(now().Add(time.Duration(minutes) * time.Minute))}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	never := corev1.ContainerState{}
	return map[string]*corev1.Pod{
		"running":        pod(running, never, 0, "100Mi", "200Mi"),
		"ended":          pod(end("1", 0), never, 0, "100Mi", "200Mi"),
		"waiting":        pod(waiting, end("1", 0), 0, "100Mi", "200Mi"),
		"restarted":      pod(running, end("1", 0), 1, "100Mi", "200Mi"),
		"resized":        pod(running, end("1", 0), 1, "300Mi", "400Mi"),
		"ended again":    pod(end("2", 5), end("1", 0), 1, "300Mi", "400Mi"),
		"waiting again":  pod(waiting, end("2", 5), 1, "300Mi", "400Mi"),
		"both at once":   pod(end("2", 5), end("1", 0), 1, "100Mi", "200Mi"),
		"an old kubelet": pod(waiting, end("", 0), 0, "100Mi", "200Mi"),
	}
}

func TestPodOOMs_FindsNewTerminations(t *testing.T) {
	for _, tc := range []struct {
		name, older, newer string
		limits             []int64 // of each kill, Mi
	}{
		// The reference misses the first two kills.
		{name: "kill seen at the end", older: "running", newer: "ended", limits: []int64{200}},
		{name: "kill seen while waiting", older: "running", newer: "waiting", limits: []int64{200}},
		{name: "restart after a kill that was seen while waiting", older: "waiting", newer: "restarted"},
		{name: "kill and restart at once", older: "running", newer: "restarted", limits: []int64{200}},
		{name: "kill and resize at once", older: "running", newer: "resized", limits: []int64{200}},
		{name: "waiting after a kill that was seen", older: "ended", newer: "waiting"},
		{name: "restart after a kill that was seen", older: "ended", newer: "restarted"},
		{name: "second kill", older: "restarted", newer: "ended again", limits: []int64{400}},
		{name: "restart and second kill at once", older: "ended", newer: "ended again", limits: []int64{400}},
		{name: "second kill seen while waiting", older: "waiting", newer: "waiting again", limits: []int64{200}},
		{name: "kill of a resized container seen while waiting", older: "resized", newer: "waiting again", limits: []int64{400}},
		{name: "two kills at once", older: "running", newer: "both at once", limits: []int64{200, 200}},
		{name: "kill without a container ID", older: "running", newer: "an old kubelet"},
		{name: "new pod that runs", newer: "running"},
		{name: "new pod with a kill", newer: "ended", limits: []int64{200}},
		{name: "new pod with two kills", newer: "both at once", limits: []int64{200, 200}},
		{name: "new pod with a kill without a container ID", newer: "an old kubelet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []int64
			ids := map[string]bool{}
			for _, kill := range PodOOMs(podStages()[tc.older], podStages()[tc.newer]) {
				got = append(got, int64(kill.Limit)>>20)
				require.Equal(t, kill.Limit/2, min(kill.Memory, kill.Limit/2))
				require.NotEmpty(t, kill.ID)
				ids[kill.ID] = true
			}
			require.Equal(t, tc.limits, got)
			require.Len(t, ids, len(got))
		})
	}
}

func TestEvictionOOMs_FallsBackToEventUID(t *testing.T) {
	e := &corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}}
	e.UID = "u1"
	e.Annotations = map[string]string{offendingContainersAnnotation: "a", offendingUsageAnnotation: "1Mi", starvedResourceAnnotation: "memory"}
	require.Equal(t, "u1", EvictionOOMs(e)[0].ID)
}
