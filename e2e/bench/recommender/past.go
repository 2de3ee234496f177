package recommender

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/source/trace"
)

// recordings are played by the workloads in turn.
var recordings = []string{"steady", "spiky", "growing"}

// recording is the usage of each second of a trace.
type recording struct {
	cpu, memory []float64 // cores, mean of the scrape interval that ends here, and bytes
}

// writeCheckpoints writes the checkpoints of a recommender that sampled the same recordings once a
// minute for the span of the history. Both recommenders read them.
func (l load) writeCheckpoints(ctx context.Context, cluster *harness.Cluster, o options) error {
	past := make([]recording, len(recordings))
	for i, name := range recordings {
		var err error
		if past[i], err = readRecording(filepath.Join("..", "testdata", "traces", name+".csv.gz"), o.scrape); err != nil {
			return err
		}
	}
	now := time.Now().Truncate(time.Minute)
	return harness.Each(ctx, l.vpas, func(ctx context.Context, i int) error {
		w := l.workload(i)
		image := past[i%len(past)].replay(int(w.Replicas), offset(i), o.history, now)
		record, err := checkpoint.NewRecord(checkpoint.Owner{Namespace: w.Namespace, VPA: w.Name}, w.Containers[0].Name, checkpoint.Content{Image: image}, now)
		if err != nil {
			return fmt.Errorf("checkpoint of %s/%s: %w", w.Namespace, w.Name, err)
		}
		_, err = cluster.VPA.AutoscalingV1().VerticalPodAutoscalerCheckpoints(w.Namespace).Create(ctx, record.Object(), metav1.CreateOptions{})
		return err
	})
}

// replay returns the usage history of a container after some pods have played the recording from an
// offset, for a span of time that ends at now.
func (r recording) replay(pods int, offset, span time.Duration, now time.Time) usage.ProfileImage {
	config := usage.DefaultConfig()
	store := usage.NewStore(config)
	var series usage.Series
	keys := make([]usage.ContainerKey, pods)
	begin := now.Add(-span)
	for i := range keys {
		keys[i] = usage.ContainerKey{Namespace: "past", Pod: fmt.Sprint(i), Container: "app"}
		series, _ = store.Track(keys[i], usage.SeriesKey{Namespace: "past", Container: "app"}, begin)
	}
	for minute := range int(span / time.Minute) {
		at := begin.Add(time.Duration(minute) * time.Minute)
		// Scrapes and iterations are not synchronized, so each iteration sees another second of the
		// minute.
		second := (int(offset/time.Second) + speed*(minute*60+minute%15)) % len(r.cpu)
		for _, key := range keys {
			store.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.FromFloat(r.cpu[second] * 1000)})
			store.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: resources.FromFloat(r.memory[second])})
		}
	}
	known := usage.NewProfile(config.Shape)
	store.Profile(&known, series)
	store.RemovePeaks(&known, now, series)
	return known.Image()
}

// readRecording reads a trace with a line for each second, in the format of the simulated nodes.
// CPU is averaged over the scrape interval, as in metrics-server.
func readRecording(path string, scrape time.Duration) (r recording, err error) {
	samples, err := trace.ReadProcess(path)
	if err != nil {
		return r, err
	}
	for _, s := range samples {
		r.memory = append(r.memory, s.Memory)
	}
	seconds := max(1, speed*int(scrape/time.Second))
	for end := range samples {
		sum := 0.0
		for back := range seconds {
			sum += samples[(end-back+len(samples))%len(samples)].CPU
		}
		r.cpu = append(r.cpu, sum/float64(seconds))
	}
	return r, nil
}
