package mutate

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// The container keeps limits of twice its requests. Its memory is capped to maxAllowed.
func ExampleConfig_Patch() {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:      "app",
		Resources: corev1.ResourceRequirements{Requests: list("500m", "512Mi"), Limits: list("1", "1Gi")},
	}}}}
	vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	vpa.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{
		{ContainerName: "app", Target: list("143m", "262144k"), LowerBound: list("100m", "200Mi"), UpperBound: list("1", "1Gi")},
	}}
	vpa.Spec.ResourcePolicy = &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{
		{ContainerName: "*", MaxAllowed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi")}},
	}}
	mutation, err := Config{}.Patch(pod, vpa, Constraints{})
	if err != nil {
		fmt.Println(err)
	}
	for _, operation := range mutation.Patch {
		line, _ := json.Marshal(operation)
		fmt.Println(string(line))
	}
	// Output:
	// {"op":"add","path":"/metadata/annotations","value":{}}
	// {"op":"test","path":"/spec/containers/0/name","value":"app"}
	// {"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":"143m"}
	// {"op":"add","path":"/spec/containers/0/resources/requests/memory","value":"200Mi"}
	// {"op":"add","path":"/spec/containers/0/resources/limits/cpu","value":"286m"}
	// {"op":"add","path":"/spec/containers/0/resources/limits/memory","value":"400Mi"}
	// {"op":"add","path":"/metadata/annotations/vpaUpdates","value":"Pod resources updated by web: container 0: memory capped to maxAllowed, cpu request, memory request, cpu limit, memory limit"}
	// {"op":"add","path":"/metadata/annotations/vpaObservedContainers","value":"app"}
}
