package nodeload

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/serving"
)

// Clear takes the taint off all nodes, for the mode Off. It looks once, and again every minute
// until a look finds none or ctx ends. Where nodes may not be listed it does nothing.
func Clear(ctx context.Context, kube kubernetes.Interface) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	var reminder serving.Reminder
	every(ctx, time.Minute, func(ctx context.Context, now time.Time) {
		nodes, err := tainted(ctx, kube)
		if apierrors.IsForbidden(err) {
			klog.FromContext(ctx).V(1).Info("It is not known whether nodes have the taint "+TaintKey+" of before", "reason", err)
			done()
			return
		}
		for _, n := range nodes {
			failed := write(ctx, kube, n, false)
			if failed == nil {
				klog.FromContext(ctx).Info("Node takes new pods again: --node-load-taint is off", "node", n.Name)
			}
			err = errors.Join(err, failed)
		}
		if ctx.Err() == nil || err == nil {
			remind(ctx, &reminder, now, err, "Nodes may still have the taint "+TaintKey+", which --node-load-taint=off takes off", "No node has the taint "+TaintKey+" any more")
		}
		if err == nil {
			done()
		}
	})
}

// pageSize is how many nodes are listed at once.
const pageSize = 500

// tainted lists the nodes with the taint, in pages.
func tainted(ctx context.Context, kube kubernetes.Interface) (found []*corev1.Node, _ error) {
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := kube.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range page.Items {
			if Tainted(&page.Items[i]) {
				found = append(found, page.Items[i].DeepCopy()) // not to keep the whole page
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return found, nil
		}
	}
}
