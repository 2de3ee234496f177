package main

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

// Where the updater answers: /left-alone beside its metrics, as updater/left_alone.go has it.
const (
	updaterPort = "8943"
	leftAlone   = "/left-alone"

	updaterComponent = "vpa-updater" // as the events of the updater name it
)

// askUpdater returns why the updater left pods alone in its last pass: one pod, or all if uid is
// empty. It asks through the API server, which wants permission to get pods/proxy.
func askUpdater(ctx context.Context, kube kubernetes.Interface, namespace string, uid types.UID, now time.Time) (map[types.UID]reason.Reason, error) {
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
		if text, err = kube.CoreV1().Pods(namespace).ProxyGet("http", pod, port, leftAlone, params).DoRaw(ctx); err != nil {
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

// updaterPods returns the pods of the updater that may lead, that which holds the Lease, or else all,
// and the port of its metrics.
func updaterPods(ctx context.Context, kube kubernetes.Interface, namespace string, now time.Time) (names []string, port string, err error) {
	deployments, err := readDeployments(ctx, kube, namespace)
	if err != nil && !apierrors.IsForbidden(err) { // who may not read them knows how most are installed
		return nil, "", err
	}
	updater := asInstalled("updater", namespace, deployments)
	if updater.elected {
		if holder, err := updater.holder(ctx, kube, now); err == nil && holder != "" {
			host, _, _ := strings.Cut(holder, "_") // who elects writes HOST_UUID
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
