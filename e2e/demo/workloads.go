package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

const namespace = "demo"

type workload struct {
	harness.Workload
	story string
}

func workloads() []workload {
	return []workload{
		{
			story: "asks for far more than it needs",
			Workload: harness.Workload{
				Namespace: namespace, Name: "shop", Replicas: 4,
				Containers:  []harness.Container{{Name: "app", CPU: "1500m", Memory: "2Gi", CPULimit: "3", MemoryLimit: "4Gi"}},
				Annotations: harness.Plays("app", "steady", 10),
			},
		},
		{
			story: "has too little memory and is OOM-killed",
			Workload: harness.Workload{
				Namespace: namespace, Name: "cache", Replicas: 2,
				Containers:  []harness.Container{{Name: "app", CPU: "200m", Memory: "256Mi", CPULimit: "2", MemoryLimit: "320Mi"}},
				Annotations: harness.Plays("app", "growing", 10),
			},
		},
		{
			story: "has a spiky CPU and no limits",
			Workload: harness.Workload{
				Namespace: namespace, Name: "search", Replicas: 2,
				Containers:  []harness.Container{{Name: "app", CPU: "50m", Memory: "512Mi"}},
				Annotations: harness.Plays("app", "spiky", 10),
			},
		},
	}
}

func createWorkloads(ctx context.Context, cluster *harness.Cluster) error {
	if err := cluster.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	fmt.Println("\nworkloads, each with a VPA in mode InPlaceOrRecreate:")
	for _, w := range workloads() {
		c := w.Containers[0]
		fmt.Printf("  %-7s %d pods of %s CPU and %s memory: %s\n", w.Name, w.Replicas, c.CPU, c.Memory, w.story)
		if err := cluster.CreateWorkload(ctx, w.Workload); err != nil {
			return err
		}
		if err := cluster.CreateVPA(ctx, w.Workload, vpav1.UpdateModeInPlaceOrRecreate); err != nil {
			return err
		}
	}
	return nil
}

// awaitPods waits until all pods run, and returns their state before any change.
func awaitPods(ctx context.Context, cluster *harness.Cluster) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		s, err := readSnapshot(ctx, cluster)
		if err != nil {
			return s, err
		}
		wanted := 0
		for _, w := range slices.Concat(workloads(), underPolicy()) {
			wanted += int(w.Replicas)
		}
		if s.running() == wanted {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("%d of %d pods run after two minutes", s.running(), wanted)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
