package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/recommender/model"
)

type oom struct {
	Namespace   string           `json:"namespace"`
	Pod         string           `json:"pod"`
	Container   string           `json:"container"`
	Timestamp   time.Time        `json:"timestamp"`
	MemoryBytes resources.Amount `json:"memoryBytes"`
}

func printOOMs(ooms []usage.OOM) []oom {
	printed := []oom{}
	for _, o := range ooms {
		printed = append(printed, oom{o.Container.Namespace, o.Container.Pod, o.Container.Container, o.At.UTC(), o.Memory})
	}
	return printed
}

type evictionInput struct {
	Event corev1.Event
}

type evictionOutput struct {
	OOMs []oom `json:"ooms"`
}

func evictionEvent(in evictionInput) (evictionOutput, error) {
	return evictionOutput{printOOMs(model.EvictionOOMs(&in.Event))}, nil
}

type podUpdateInput struct {
	Updates []struct {
		Old, New corev1.Pod
	}
}

type podUpdateOutput struct {
	OOMsPerUpdate [][]oom `json:"oomsPerUpdate"`
}

func podUpdate(in podUpdateInput) (out podUpdateOutput, err error) {
	for i := range in.Updates {
		out.OOMsPerUpdate = append(out.OOMsPerUpdate, printOOMs(model.PodOOMs(&in.Updates[i].Old, &in.Updates[i].New)))
	}
	return out, nil
}

type checkpointInput struct {
	Aggregation aggregation
	Selector    map[string]string
	Restored    *vpav1.VerticalPodAutoscalerCheckpointStatus
	Pods        []struct {
		Name   string
		Labels map[string]string
		Events []event
	}
}

type writtenCheckpoint struct {
	Name string                                    `json:"name"`
	Spec vpav1.VerticalPodAutoscalerCheckpointSpec `json:"spec"`
	vpav1.VerticalPodAutoscalerCheckpointStatus
	LastUpdateTime *struct{} `json:"lastUpdateTime,omitempty"` // hides the field of the status, which no case expects
}

type checkpointOutput struct {
	Checkpoints     []writtenCheckpoint `json:"checkpoints"`
	AggregateStates int                 `json:"aggregateStates"`
	PodCount        int                 `json:"podCount"`
}

const app = "app"

func checkpointWrite(in checkpointInput) (out checkpointOutput, err error) {
	config := in.Aggregation.config()
	store := usage.NewStore(config)
	cluster := model.NewModel(model.Config{Store: store, PerVPA: true})
	var now time.Time // the write time is before all windows
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "v"}}
	cluster.SyncVPAs([]model.Observed{{Object: vpa, Selector: labels.SelectorFromSet(in.Selector)}}, now)
	v := cluster.VPAs()[0]
	if in.Restored != nil {
		image, err := checkpoint.Image(in.Restored)
		if err != nil {
			return out, err
		}
		p := usage.NewProfile(config.Shape)
		if err := p.Load(image); err != nil {
			return out, err
		}
		v.Restored = map[string]*usage.Profile{app: &p}
	}
	for _, pod := range in.Pods {
		cluster.PutPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pod.Name, Labels: pod.Labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: app}}},
		}, now)
		for _, e := range pod.Events {
			if _, err := e.feed(store, usage.ContainerKey{Namespace: "ns", Pod: pod.Name, Container: app}); err != nil {
				return out, err
			}
		}
	}
	for _, name := range v.Containers() {
		p := usage.NewProfile(config.Shape)
		store.Profile(&p, v.Series(name)...)
		if restored := v.Restored[name]; restored != nil {
			restored.MergeInto(&p)
		}
		store.RemovePeaks(&p, now, v.Series(name)...)
		out.Checkpoints = append(out.Checkpoints, writtenCheckpoint{
			Name: vpa.Name + "-" + name,
			Spec: vpav1.VerticalPodAutoscalerCheckpointSpec{VPAObjectName: vpa.Name, ContainerName: name},

			VerticalPodAutoscalerCheckpointStatus: checkpoint.Status(p.Image(), now),
		})
	}
	out.AggregateStates, out.PodCount = store.Len(), v.Pods()
	return out, nil
}
