package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// podsPerVPA is how many pods each VPA of a profile has.
const podsPerVPA = 2

// batch is a number of VPAs whose pods all need a resize at once.
type batch struct {
	vpas int
}

// trial is what became of a profile with one updater.
type trial struct {
	batch
	updater string
	passes  int           // that had something to do
	loop    time.Duration // those took in all
	changes time.Duration // from the first pod that was resized until the last, as far as seen
	cpu     time.Duration // from its start on
	peak    int64         // bytes
	calls   int           // to the API server while it resized
}

// parseProfiles reads numbers such as "25,100".
func parseProfiles(text string) (all []batch, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-updater=%s: %q must be a number of VPAs above 0", text, part)
		}
		all = append(all, batch{n})
	}
	return all, nil
}

// runProfiles measures updaters.
func runProfiles(ctx context.Context, o options, binary, dir string) (err error) {
	profiles, err := parseProfiles(o.profiles)
	if err != nil {
		return err
	}
	programs := map[string]string{ours: ""}
	if o.only != ours {
		programs[reference] = filepath.Join(dir, "reference-updater")
		fmt.Println("build the updater of", referenceModule)
		if err := buildReference(ctx, "./pkg/updater", programs[reference]); err != nil {
			return fmt.Errorf("build %s: %w", referenceModule, err)
		}
	}
	most := slices.MaxFunc(profiles, func(a, b batch) int { return a.vpas - b.vpas })
	cluster, err := harness.Start(ctx, harness.Options{
		Binary: binary, Root: "..", Dir: filepath.Join(dir, "cluster"), Out: os.Stdout,
		Nodes: most.vpas*podsPerVPA/slotsPerNode + 1,
		Args:  []string{fmt.Sprint("--node-pods=", slotsPerNode), "--node-cpu=64", "--node-memory=256Gi"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Down()) }()
	var trials []trial
	for _, p := range profiles {
		for _, name := range []string{ours, reference} {
			program, chosen := programs[name]
			if !chosen || o.only != "" && o.only != name {
				continue
			}
			one, err := p.try(ctx, cluster, o, name, program)
			if err != nil {
				return fmt.Errorf("%d VPAs, %s: %w\nlogs are in %s", p.vpas, name, err, cluster.KeepLogs())
			}
			trials = append(trials, one)
		}
	}
	table := trialTable(trials, o)
	fmt.Print("\n", table)
	if o.document == "" {
		return nil
	}
	return into(o.document, "updater figures", table)
}

func (p batch) workload(namespace string, i int) harness.Workload {
	return harness.Workload{Namespace: namespace, Name: fmt.Sprintf("app-%d", i), Replicas: podsPerVPA,
		Containers:  []harness.Container{{Name: "app", CPU: "100m", Memory: "100Mi"}},
		Annotations: harness.Uses("app", "50m", "50Mi")}
}

// try makes the pods and the VPAs, with recommendations that are written by hand,
// runs an updater until all pods are resized, and removes everything again.
func (p batch) try(ctx context.Context, cluster *harness.Cluster, o options, name, program string) (r trial, err error) {
	namespace := fmt.Sprintf("profile-%d-%s", p.vpas, name)
	fmt.Printf("%s: %d VPAs with %d pods\n", name, p.vpas, p.vpas*podsPerVPA)
	if err := p.fill(ctx, cluster, namespace); err != nil {
		return r, err
	}
	label := fmt.Sprintf("updater-%d-%s", p.vpas, name)
	args := []string{fmt.Sprint("--updater-interval=", o.interval), "--in-place-skip-disruption-budget=true", "--use-admission-controller-status=false"}
	account := "vpa-updater"
	var daemon *harness.Daemon
	if program == "" {
		daemon, err = cluster.Daemon(ctx, "updater", label, args...)
	} else {
		account = "vpa-" + label
		daemon, err = cluster.Foreign(ctx, program, label, args...)
	}
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := daemon.Start(ctx); err != nil {
		return r, err
	}
	r, err = p.watch(ctx, daemon)
	r.updater = name
	if err == nil {
		r.cpu, err = processorTime(daemon.PID())
	}
	if err == nil {
		_, r.peak, err = memory(daemon.PID())
	}
	daemon.Stop()
	if err != nil {
		return r, err
	}
	calls, err := countCalls(cluster, account, began, time.Now())
	if err != nil {
		return r, err
	}
	for _, n := range calls.other {
		r.calls += n
	}
	if err := p.check(ctx, cluster, namespace); err != nil {
		return r, err
	}
	return r, cluster.Kubectl(ctx, "delete", "namespace", namespace, "--wait=true")
}

// fill creates the Deployments, waits for their pods, and recommends more.
func (p batch) fill(ctx context.Context, cluster *harness.Cluster, namespace string) error {
	if err := cluster.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := harness.Each(ctx, p.vpas, func(ctx context.Context, i int) error {
		return cluster.CreateWorkload(ctx, p.workload(namespace, i))
	}); err != nil {
		return err
	}
	if err := await(ctx, "pods that run", p.vpas*podsPerVPA, func() (int, error) {
		list, err := cluster.Kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return 0, err
		}
		ready := 0
		for _, d := range list.Items {
			ready += int(d.Status.ReadyReplicas)
		}
		return ready, nil
	}); err != nil {
		return err
	}
	vpas := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(namespace)
	return harness.Each(ctx, p.vpas, func(ctx context.Context, i int) error {
		w := p.workload(namespace, i)
		if err := cluster.CreateVPA(ctx, w, vpav1.UpdateModeInPlaceOrRecreate, func(v *vpav1.VerticalPodAutoscaler) {
			v.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: "nobody"}}
		}); err != nil {
			return err
		}
		vpa, err := vpas.Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		target := wanted()
		vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
			{ContainerName: "app", LowerBound: target, Target: target, UpperBound: target}}}
		_, err = vpas.UpdateStatus(ctx, vpa, metav1.UpdateOptions{})
		return err
	})
}

// wanted is what is recommended for every pod.
func wanted() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("200Mi")}
}

const (
	updaterLatency = "vpa_updater_execution_latency_seconds"
	updaterResized = "vpa_updater_in_place_updated_pods_total"
	updaterEvicted = "vpa_updater_evicted_pods_total"
)

// watch follows the metrics of an updater until the pass has ended in which it
// resized the last pod.
func (p batch) watch(ctx context.Context, d *harness.Daemon) (r trial, err error) {
	r.batch = p
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var first, last time.Time
	idle, done := 0, -1 // passes before the first change, and at the last one
	for {
		metrics, err := d.Metrics(ctx)
		if err != nil {
			return r, err
		}
		passes := int(metrics[updaterLatency+`_count{step="`+total+`"}`])
		spent := time.Duration(metrics[updaterLatency+`_sum{step="`+total+`"}`] * float64(time.Second))
		resized := int(summed(metrics, updaterResized))
		switch {
		case summed(metrics, updaterEvicted) > 0:
			return r, errors.New("a pod was evicted that could be resized")
		case resized == 0:
			idle, r.loop = passes, -spent // what those before took does not count
		case first.IsZero():
			first = time.Now()
		}
		if resized >= p.vpas*podsPerVPA && done < 0 {
			last, done = time.Now(), passes
			fmt.Printf("  all %d pods are resized\n", resized)
		}
		// Counters of a pass may appear before it ends.
		if done >= 0 && (passes > done || time.Since(last) > 2*time.Second) {
			r.passes, r.loop, r.changes = passes-idle, r.loop+spent, last.Sub(first)
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("%d of %d pods are resized: %w", resized, p.vpas*podsPerVPA, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// summed adds a metric up over its labels.
func summed(metrics map[string]float64, name string) (sum float64) {
	for series, value := range metrics {
		if strings.HasPrefix(series, name+"{") {
			sum += value
		}
	}
	return sum
}

// check requires that every pod asks for what is recommended.
func (p batch) check(ctx context.Context, cluster *harness.Cluster, namespace string) error {
	list, err := cluster.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	sized := 0
	for _, pod := range list.Items {
		has, target := pod.Spec.Containers[0].Resources.Requests, wanted()
		if has.Cpu().Cmp(*target.Cpu()) == 0 && has.Memory().Cmp(*target.Memory()) == 0 {
			sized++
		}
	}
	if want := p.vpas * podsPerVPA; sized != want || len(list.Items) != want {
		return fmt.Errorf("%d of %d pods have what is recommended, expected %d", sized, len(list.Items), want)
	}
	return nil
}

// trialTable writes trials as a table in Markdown.
func trialTable(trials []trial, o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Each VPA has %d pods, all of which need a resize in place at once; a pass each %s; %d processors.\n\n", podsPerVPA, o.interval, runtime.NumCPU())
	b.WriteString("| VPAs | pods | updater | loop | passes | first to last change | requests | processor time | memory at most |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range trials {
		fmt.Fprintf(&b, "| %d | %d | %s | %s | %d | %s | %d | %s | %s |\n", r.vpas, r.vpas*podsPerVPA, r.updater, seconds(r.loop), r.passes, seconds(r.changes), r.calls, seconds(r.cpu), mebibytes(r.peak))
	}
	return b.String()
}
