package main

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lean is what is needed of a pod, and nothing else.
func lean(pod *corev1.Pod) corev1.Pod {
	kept := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, GenerateName: pod.GenerateName, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences}}
	for _, c := range pod.Spec.Containers {
		kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Name: c.Name, Resources: c.Resources})
	}
	for _, c := range pod.Spec.InitContainers {
		kept.Spec.InitContainers = append(kept.Spec.InitContainers, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	kept.Spec.Resources, kept.Spec.Overhead = pod.Spec.Resources, pod.Spec.Overhead
	kept.Spec.ActiveDeadlineSeconds, kept.Spec.PriorityClassName = pod.Spec.ActiveDeadlineSeconds, pod.Spec.PriorityClassName
	return kept
}

// FuzzDecodePod compares the short way to read a pod with the long one. The API
// server writes what it has decoded itself, so only such JSON counts.
func FuzzDecodePod(f *testing.F) {
	f.Add(usualPod(f))
	f.Add([]byte(`{"metadata":{"annotations":{"a\"":"}"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"overhead":{"cpu":"1m"}}}`))
	f.Add([]byte(`{"spec":{"initContainers":[{"restartPolicy":"Always","image":"x"}],"volumes":[{"name":"v"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = decodePod(raw) // must not panic, whatever it is given
		var pod corev1.Pod
		if json.Unmarshal(raw, &pod) != nil {
			return
		}
		written, err := json.Marshal(&pod)
		if err != nil {
			return
		}
		short, err := decodePod(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		var whole corev1.Pod
		if err := json.Unmarshal(written, &whole); err != nil {
			t.Fatal(err)
		}
		if want := lean(&whole); !reflect.DeepEqual(&want, short) && !bothEmpty(&want, short) {
			t.Fatalf("%s\ngives %+v\nexpected %+v", written, short, want)
		}
	})
}

// bothEmpty tells whether two pods differ only in lists that are empty or absent.
func bothEmpty(a, b *corev1.Pod) bool {
	one, err := json.Marshal(a)
	if err != nil {
		return false
	}
	other, err := json.Marshal(b)
	return err == nil && string(one) == string(other)
}
