package policies

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// Status writes conditions of SizingPolicies.
type Status struct {
	Client versioned.Interface // nil: nothing is written
}

// Write replaces the list of conditions of a policy, unless another client has written the policy
// meanwhile.
func (s Status) Write(ctx context.Context, p *loadlinev1alpha1.SizingPolicy, conditions []metav1.Condition) error {
	if s.Client == nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("print the conditions: %w", err)
	}
	_, err = s.Client.LoadlineV1alpha1().SizingPolicies().Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
