package compat

import (
	"cmp"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	reference "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"

	"loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

// fleet is the input of the benchmarks: pods of two containers with log-normal usage, five equally
// labeled pods for each VPA, sorted by namespace and name like an API server's list.
type fleet struct {
	vpas []vpaPlan
	pods []event
}

const podsPerVPA, containersPerPod = 5, 2

func newFleet(pods int) fleet {
	var f fleet
	for i := range pods / podsPerVPA {
		p := vpaPlan{namespace: namespaceOf(i), name: fmt.Sprint("web", i)}
		p.versions = append(p.versions, p.bare())
		f.vpas = append(f.vpas, p)
	}
	for i := range pods {
		vpa := i / podsPerVPA
		name := f.vpas[vpa].name
		f.pods = append(f.pods, event{
			kind: appears, vpa: vpa, pod: fmt.Sprintf("%s-6d5f7c9b8-%d", name, i),
			labels: labels.Set{"app": name, "pod-template-hash": "6d5f7c9b8", "tier": "backend"}, names: containers[:containersPerPod],
		})
	}
	slices.SortFunc(f.pods, func(a, b event) int {
		return cmp.Or(strings.Compare(f.vpas[a.vpa].namespace, f.vpas[b.vpa].namespace), strings.Compare(a.pod, b.pod))
	})
	return f
}

// namespaceOf spreads VPAs over 100 namespaces of uneven size, the largest twenty times the usual.
// With equal sizes all tables would grow at the same pod, inside or outside of a measurement.
func namespaceOf(vpa int) string {
	_, at := math.Modf(float64(vpa) * math.Phi)
	return fmt.Sprint("team-", int(100*at*at))
}

// samples calls one for each container of a tick, with millicores and bytes that depend only on the
// tick.
func (f fleet) samples(tick int, one func(pod *event, container string, at time.Time, cpu, memory int64)) {
	random := rand.New(rand.NewSource(int64(tick)))
	for i := range f.pods {
		pod := &f.pods[i]
		at := at(tick).Add(-time.Duration(i%15) * time.Second)
		for _, container := range pod.names {
			noise := math.Exp(random.NormFloat64())
			one(pod, container, at, int64(200*noise), int64(3e8*noise))
		}
	}
}

func at(tick int) time.Time { return dayOne.Add(time.Duration(tick) * time.Minute) }

var dayOne = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func upstreamFleet(b *testing.B, f fleet, withVPAs bool) *upstream {
	u := newUpstream(defaults())
	if withVPAs {
		for _, p := range f.vpas {
			require.NoError(b, u.cluster.AddOrUpdateVpa(p.versions[0], p.selector()))
		}
	}
	return u
}

func (f fleet) addToUpstream(u *upstream) {
	for i := range f.pods {
		p := &f.pods[i]
		id := podID(f.vpas[p.vpa], p.pod)
		u.cluster.AddOrUpdatePod(id, p.labels, corev1.PodRunning)
		for _, name := range p.names {
			_ = u.cluster.AddOrUpdateContainer(reference.ContainerID{PodID: id, ContainerName: name}, nil)
		}
	}
}

func (f fleet) tickUpstream(u *upstream, tick int) {
	f.samples(tick, func(pod *event, container string, at time.Time, cpu, memory int64) {
		id := reference.ContainerID{PodID: podID(f.vpas[pod.vpa], pod.pod), ContainerName: container}
		_ = u.cluster.AddSample(&reference.ContainerUsageSampleWithKey{Container: id,
			ContainerUsageSample: reference.ContainerUsageSample{MeasureStart: at, Usage: reference.ResourceAmount(cpu), Resource: reference.ResourceCPU}})
		_ = u.cluster.AddSample(&reference.ContainerUsageSampleWithKey{Container: id,
			ContainerUsageSample: reference.ContainerUsageSample{MeasureStart: at, Usage: reference.ResourceAmount(memory), Resource: reference.ResourceMemory}})
	})
}

func loadlineFleet(b *testing.B, f fleet, withVPAs bool) *loadline {
	l := newLoadline(b, defaults())
	l.connect()
	if !withVPAs {
		return l
	}
	for _, p := range f.vpas {
		object := &v1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}}
		object.Spec.TargetRef = p.versions[0].Spec.TargetRef
		l.observed = append(l.observed, model.Observed{Object: object, Selector: p.selector()})
	}
	l.model.SyncVPAs(l.observed, dayOne)
	return l
}

// objects returns the pods of a fleet, trimmed as in the informer cache.
func (f fleet) objects() []*corev1.Pod {
	list := make([]*corev1.Pod, len(f.pods))
	for i := range f.pods {
		p := &f.pods[i]
		list[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.vpas[p.vpa].namespace, Name: p.pod, Labels: p.labels}}
		for _, name := range p.names {
			list[i].Spec.Containers = append(list[i].Spec.Containers, corev1.Container{Name: name})
		}
	}
	return list
}

func addToLoadline(l *loadline, pods []*corev1.Pod) {
	for _, p := range pods {
		l.model.PutPod(p, dayOne)
	}
}

func (f fleet) tickLoadline(l *loadline, tick int) {
	f.samples(tick, func(pod *event, container string, at time.Time, cpu, memory int64) {
		key := usage.ContainerKey{Namespace: f.vpas[pod.vpa].namespace, Pod: pod.pod, Container: container}
		l.store.Observe(usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.Amount(cpu)})
		l.store.Observe(usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: resources.Amount(memory)})
	})
}
