package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/core/reason"
)

// Metrics port of the updater, and the path of skipped pods there.
const (
	updaterPort = "8943"
	skipsPath   = "/left-alone"

	UpdaterComponent = "vpa-updater" // source component of its events
)

// SkipReasons returns why the updater skipped pods in its last loop iteration, for one pod or,
// with an empty UID, for all. It needs the permission to get pods/proxy.
func SkipReasons(ctx context.Context, kube kubernetes.Interface, namespace string, uid types.UID, now time.Time) (map[types.UID]reason.Reason, error) {
	pods, port, err := updaterPods(ctx, kube, namespace, now)
	if err != nil {
		return nil, err
	}
	params := map[string]string{}
	if uid != "" {
		params["uid"] = string(uid)
	}
	err = errors.New("none is there")
	for _, pod := range pods {
		var text []byte
		if text, err = kube.CoreV1().Pods(namespace).ProxyGet("http", pod, port, skipsPath, params).DoRaw(ctx); err != nil {
			continue
		}
		var answer struct {
			Reasons map[reason.Reason][]types.UID `json:"reasons"`
		}
		if err = json.Unmarshal(text, &answer); err != nil {
			continue
		}
		found := map[types.UID]reason.Reason{}
		for why, uids := range answer.Reasons {
			for _, uid := range uids {
				found[uid] = why
			}
		}
		return found, nil
	}
	return nil, fmt.Errorf("ask the updater in namespace %s: %w", namespace, err)
}

// updaterPods returns the pods of the updater that may lead, and the metrics port. These are the
// holder of the Lease or, without a holder, all pods.
func updaterPods(ctx context.Context, kube kubernetes.Interface, namespace string, now time.Time) (names []string, port string, err error) {
	deployments, err := ListDeployments(ctx, kube, namespace)
	if err != nil && !apierrors.IsForbidden(err) { // without the permission the defaults apply
		return nil, "", err
	}
	updater := FindInstallation("updater", namespace, deployments)
	if updater.LeaderElection {
		if holder, err := updater.Holder(ctx, kube, now); err == nil && holder != "" {
			host, _, _ := strings.Cut(holder, "_") // identities are HOST_UUID
			return []string{host}, updater.port, nil
		}
	}
	list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: updater.selector})
	if err != nil {
		return nil, "", fmt.Errorf("list the pods of the updater in namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, updater.port, nil
}
