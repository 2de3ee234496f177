package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

// UpdaterComponent is the source component of the events of the updater.
const UpdaterComponent = "vpa-updater"

const updaterPort = "8943" // of its metrics

// SkipReasons returns why the updater skipped pods in its last loop iteration.
func SkipReasons(ctx context.Context, kube kubernetes.Interface, namespace string, now time.Time) (map[types.UID]reason.Reason, error) {
	var answer explanation.Skips
	if err := query(ctx, kube, "updater", namespace, explanation.SkipsPath, nil, now, &answer); err != nil {
		return nil, err
	}
	found := map[types.UID]reason.Reason{}
	for why, uids := range answer.Reasons {
		for _, uid := range uids {
			found[types.UID(uid)] = why
		}
	}
	return found, nil
}

// ExplainVPA returns the explanation of a VPA by the recommender in the namespace of the programs.
func ExplainVPA(ctx context.Context, kube kubernetes.Interface, programs, namespace, name string, now time.Time) (*explanation.VPA, error) {
	answer := &explanation.VPA{}
	return answer, query(ctx, kube, "recommender", programs, explanation.VPAPath, map[string]string{"namespace": namespace, "name": name}, now, answer)
}

// ExplainPod returns the explanation of a pod by the updater in the namespace of the programs.
func ExplainPod(ctx context.Context, kube kubernetes.Interface, programs, namespace, name string, now time.Time) (*explanation.Pod, error) {
	answer := &explanation.Pod{}
	return answer, query(ctx, kube, "updater", programs, explanation.PodPath, map[string]string{"namespace": namespace, "name": name}, now, answer)
}

// query sends a GET request to a program's leader. It needs the permission to get pods/proxy.
func query(ctx context.Context, kube kubernetes.Interface, program, namespace, path string, params map[string]string, now time.Time, answer any) error {
	pods, port, err := leaders(ctx, kube, program, namespace, now)
	if err == nil && len(pods) == 0 {
		err = errors.New("no pod found")
	}
	for _, pod := range pods {
		text, failed := kube.CoreV1().Pods(namespace).ProxyGet("http", pod, port, path, params).DoRaw(ctx)
		if failed == nil {
			failed = json.Unmarshal(text, answer)
		}
		if failed == nil {
			return nil
		}
		if err == nil || apierrors.IsServiceUnavailable(err) { // of a replica that does not lead
			err = failed
		}
	}
	if len(pods) > 0 {
		err = explainRefusal(err, "get pods/proxy")
	}
	return fmt.Errorf("query the %s in namespace %s: %w", program, namespace, err)
}

// explainRefusal returns a short error that names the missing permission, or the answer of the program.
func explainRefusal(err error, permission string) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("no permission to %s, which the Role of deploy/explain-reader grants", permission)
	}
	details := status.Status().Details
	if details == nil {
		return err
	}
	for _, cause := range details.Causes {
		switch text := strings.TrimSpace(cause.Message); {
		case cause.Type != metav1.CauseTypeUnexpectedServerResponse || text == "":
		case status.Status().Code == http.StatusNotFound && text == "404 page not found":
			return errors.New("it serves no explanations: it has --explain=false, or another version")
		default:
			return errors.New(text)
		}
	}
	return err
}

// leaders returns the holder of the Lease, or all pods without one, and the metrics port.
func leaders(ctx context.Context, kube kubernetes.Interface, program, namespace string, now time.Time) (names []string, port string, err error) {
	deployments, err := ListDeployments(ctx, kube, namespace)
	if err != nil && !apierrors.IsForbidden(err) { // without the permission the defaults apply
		return nil, "", err
	}
	installation := FindInstallation(program, namespace, deployments)
	if installation.LeaderElection {
		if holder, err := installation.Holder(ctx, kube, now); err == nil && holder != "" {
			host, _, _ := strings.Cut(holder, "_") // identities are HOST_UUID
			return []string{host}, installation.port, nil
		}
	}
	list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: installation.selector})
	if err != nil {
		return nil, "", explainRefusal(err, "list pods")
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, installation.port, nil
}
