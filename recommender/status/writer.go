package status

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
)

// Writer writes the status of VPAs. It is safe for concurrent use.
type Writer struct{ Client versioned.Interface }

// Write patches the status of a VPA and reports true, unless the present status
// means the same: quantities count by value, and an empty list is no list.
func (w Writer) Write(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler, status vpav1.VerticalPodAutoscalerStatus) (bool, error) {
	if same(&vpa.Status, &status) {
		return false, nil
	}
	body, err := json.Marshal([]client.PatchOperation{client.PatchAdd("/status", status)})
	if err != nil {
		return false, fmt.Errorf("write the status of VPA %s/%s: %w", vpa.Namespace, vpa.Name, err)
	}
	_, err = w.Client.AutoscalingV1().VerticalPodAutoscalers(vpa.Namespace).
		Patch(ctx, vpa.Name, types.JSONPatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return false, fmt.Errorf("write the status of VPA %s/%s: %w", vpa.Namespace, vpa.Name, err)
	}
	return true, nil
}
