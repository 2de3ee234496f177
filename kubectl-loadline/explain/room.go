package explain

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/kube/autoscaler"
)

// room says whether evictions by the updater wait for room on nodes, and why. It is
// empty where that may not be read: the rest of the answer does not need it.
func room(ctx context.Context, kube kubernetes.Interface, now time.Time) string {
	labelled := func(ctx context.Context, label string) (string, error) {
		nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: label, Limit: 1})
		if err != nil || len(nodes.Items) == 0 {
			return "", err
		}
		return nodes.Items[0].Name, nil
	}
	sign, err := autoscaler.Cluster{Kube: kube, Labelled: labelled}.Find(ctx, now)
	if err != nil {
		return ""
	}
	return autoscaler.Explain(sign)
}
