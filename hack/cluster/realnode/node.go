package realnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/hack/cluster/instance"
)

// Announce creates the Node object with the address of its kubelet. An only node has no taint.
func Announce(ctx context.Context, client kubernetes.Interface, only bool) error {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: instance.RealNode}}
	if !only {
		// Pods for simulated nodes have images that the real node lacks.
		object.Spec.Taints = []corev1.Taint{{Key: instance.RealNodeTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
	node, err := client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create node %s: %w", instance.RealNode, err)
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: instance.Loopback}, {Type: corev1.NodeHostName, Address: instance.RealNode},
	}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the address of node %s: %w", instance.RealNode, err)
	}
	return nil
}

const trialTime = time.Minute

// Try runs a pod on the node and removes it, because a kubelet is ready even if it cannot start
// containers on this machine. The error contains the last warning event.
func Try(ctx context.Context, client kubernetes.Interface) error {
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	now := int64(0)
	trial := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "real-node-trial"},
		Spec: corev1.PodSpec{
			NodeName: instance.RealNode, AutomountServiceAccountToken: new(bool), TerminationGracePeriodSeconds: &now,
			Containers: []corev1.Container{{Name: "app", Image: Image, ImagePullPolicy: corev1.PullNever}},
		},
	}
	if _, err := pods.Create(ctx, trial, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", trial.Name, err)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, trialTime, true, func(ctx context.Context) (bool, error) {
		var pod *corev1.Pod
		if pod, last = pods.Get(ctx, trial.Name, metav1.GetOptions{}); last == nil && pod.Status.Phase != corev1.PodRunning {
			last = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the node's first pod did not run: %w", errors.Join(last, warning(ctx, client, trial), err))
	}
	if err := pods.Delete(ctx, trial.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return fmt.Errorf("delete pod %s: %w", trial.Name, err)
	}
	return nil
}

func warning(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	events, err := client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.name=" + pod.Name})
	if err != nil || len(events.Items) == 0 {
		return err
	}
	return errors.New(events.Items[len(events.Items)-1].Message)
}
