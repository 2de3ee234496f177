package supervise

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kwok/kustomize/crd"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/hack/cluster/instance"
)

// bootTime allows for a machine that compiles on all cores, where a start takes tens of seconds.
const bootTime = 4 * time.Minute

// bootstrap creates the initial objects of a new API server.
type bootstrap struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	metrics int // port of metrics-server
	ca      []byte
}

func newBootstrap(folder instance.Folder, metricsPort int, ca []byte) (*bootstrap, error) {
	config, err := clientcmd.BuildConfigFromFlags("", folder.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &bootstrap{client: client, dynamic: dyn, metrics: metricsPort, ca: ca}, nil
}

// await polls until ask returns true. After a timeout it also returns the last error.
func await(ctx context.Context, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	var last error
	const interval = 50 * time.Millisecond
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		var ok bool
		ok, last = ask(ctx)
		return ok && last == nil, nil
	})
	if err == nil {
		return nil
	}
	return errors.Join(context.Cause(ctx), last)
}

func (b *bootstrap) awaitServer(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) (bool, error) {
		_, err := b.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, err
	})
}

func (b *bootstrap) apply(ctx context.Context, resource schema.GroupVersionResource, namespace string, document []byte) error {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		return fmt.Errorf("decode object: %w", err)
	}
	_, err := b.dynamic.Resource(resource).Namespace(namespace).Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: "loadline-cluster", Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// applyStages creates kwok's Stage type and the stages, which kwok reads at start.
func (b *bootstrap) applyStages(ctx context.Context, o instance.Options) error {
	all, err := simulation(o)
	if err != nil {
		return err
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := b.apply(ctx, crds, "", crd.Stage); err != nil {
		return err
	}
	for _, s := range all {
		// A new type is not served immediately.
		err = await(ctx, func(ctx context.Context) (bool, error) {
			err := b.apply(ctx, stageResource(), "", s.YAML)
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.File, err)
		}
	}
	return nil
}

func stageResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kwok.x-k8s.io", Version: "v1alpha1", Resource: "stages"}
}

// touchStages changes an annotation of each stage. kwok is inactive until a stage changes if it
// received the first stages before it listened for changes.
func (b *bootstrap) touchStages(ctx context.Context, now time.Time) error {
	all, err := b.dynamic.Resource(stageResource()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list stages: %w", err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"loadline.dev/touched":%q}}}`, now.UTC().Format(time.RFC3339))
	for _, stage := range all.Items {
		if _, err := b.dynamic.Resource(stageResource()).Patch(ctx, stage.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch stage %s: %w", stage.GetName(), err)
		}
	}
	return nil
}

// simulated is the annotation of the nodes that kwok manages.
const simulated = "kwok.x-k8s.io/node"

func (b *bootstrap) createNodes(ctx context.Context, o instance.Options) error {
	const atOnce = 16
	names := make(chan string)
	go func() {
		defer close(names)
		for i := range o.Nodes {
			names <- fmt.Sprintf("node-%d", i+1)
		}
	}()
	problems := make([]error, atOnce)
	var workers sync.WaitGroup
	for worker := range atOnce {
		workers.Go(func() {
			for name := range names {
				_, err := b.client.CoreV1().Nodes().Create(ctx, simulatedNode(name, o), metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) {
					problems[worker] = fmt.Errorf("create node %s: %w", name, err)
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(problems...)
}

// simulatedNode has a metrics path on the player.
func simulatedNode(name string, o instance.Options) *corev1.Node {
	size := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(o.NodeCPU),
		corev1.ResourceMemory: resource.MustParse(o.NodeMemory),
		corev1.ResourcePods:   *resource.NewQuantity(int64(o.NodePods), resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			},
			Annotations: map[string]string{
				simulated:                              "fake",
				"metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + name + "/metrics/resource",
			},
		},
		Status: corev1.NodeStatus{
			Capacity: size, Allocatable: size,
			NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux", KubeletVersion: "v1.36.3"},
		},
	}
}

// registerMetrics registers metrics-server with a service with external name, which requires no
// endpoints and no pod network.
func (b *bootstrap) registerMetrics(ctx context.Context) error {
	service := fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: metrics-server},
  spec: {type: ExternalName, externalName: localhost, ports: [{port: %d}]}}`, b.metrics)
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	if err := b.apply(ctx, services, metav1.NamespaceSystem, []byte(service)); err != nil {
		return err
	}
	api := fmt.Sprintf(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1beta1.metrics.k8s.io},
  spec: {group: metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100, caBundle: %s,
    service: {name: metrics-server, namespace: kube-system, port: %d}}}`, base64.StdEncoding.EncodeToString(b.ca), b.metrics)
	return b.apply(ctx, apiServices(), "", []byte(api))
}

func apiServices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
}

// touchInterval is the time for nodes to become ready before the stages are touched again.
const touchInterval = 20 * time.Second

func (b *bootstrap) awaitNodes(ctx context.Context, count int) error {
	touched := time.Now()
	return await(ctx, func(ctx context.Context) (bool, error) {
		nodes, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list nodes: %w", err)
		}
		ready := 0
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				// Pods are placed only after the taint is removed, a moment after the condition
				// changes.
				notReady := func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeNotReady }
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !slices.ContainsFunc(n.Spec.Taints, notReady) {
					ready++
				}
			}
		}
		if ready >= count {
			return true, nil
		}
		if now := time.Now(); now.Sub(touched) >= touchInterval {
			touched = now
			if err := b.touchStages(ctx, now); err != nil {
				return false, err
			}
		}
		return false, fmt.Errorf("%d of %d nodes are ready", ready, count)
	})
}

func (b *bootstrap) awaitServiceAccount(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

func (b *bootstrap) awaitMetrics(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) (bool, error) {
		service, err := b.dynamic.Resource(apiServices()).Get(ctx, "v1beta1.metrics.k8s.io", metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("get APIService: %w", err)
		}
		conditions, _, err := unstructured.NestedSlice(service.Object, "status", "conditions")
		if err != nil {
			return false, fmt.Errorf("read APIService: %w", err)
		}
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Available" {
				if c["status"] == "True" {
					return true, nil
				}
				return false, fmt.Errorf("metrics API: %v", c["message"])
			}
		}
		return false, errors.New("metrics API: no status yet")
	})
}
