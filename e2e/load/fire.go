package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/e2e/harness"
)

// gun sends reviews of new pods.
type gun struct {
	url    string
	client *http.Client
	bodies [][]byte // one for each VPA
	next   int
}

// aim asks the API server where the webhook is and whom to trust, and makes one
// review for each VPA from a pod that the API server filled in.
func aim(ctx context.Context, cluster *harness.Cluster, owners map[string]string) (*gun, error) {
	registration, err := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "vpa-webhook-config", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	way := registration.Webhooks[0].ClientConfig
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(way.CABundle)
	g := &gun{url: *way.URL, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DisableCompression: true}}}
	for app, set := range owners {
		var number int
		if _, err := fmt.Sscanf(app, "app-%d", &number); err != nil {
			continue // of somebody else
		}
		g.bodies = append(g.bodies, []byte(app+" "+set)) // sorted first, so that runs are alike
	}
	slices.SortFunc(g.bodies, bytes.Compare)
	sets, err := cluster.Kube.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	byName := map[string]int{}
	for i := range sets.Items {
		byName[sets.Items[i].Name] = i
	}
	var example *corev1.Pod
	for i, names := range g.bodies {
		_, set, _ := strings.Cut(string(names), " ")
		owner := &sets.Items[byName[set]]
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: owner.Name + "-", Namespace: owner.Namespace, Labels: owner.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner.Name, UID: owner.UID, Controller: new(true), BlockOwnerDeletion: new(true)}}},
			Spec: owner.Spec.Template.Spec}
		if example == nil {
			if example, err = asStored(ctx, cluster, pod); err != nil {
				return nil, err
			}
		}
		pod.ManagedFields, pod.Spec, pod.Status = example.ManagedFields, example.Spec, example.Status
		if g.bodies[i], err = review(pod); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// asStored returns a pod with what the API server adds. It is asked as if it were
// created in a namespace without VPAs, so that it has the resources it came with.
func asStored(ctx context.Context, cluster *harness.Cluster, pod *corev1.Pod) (*corev1.Pod, error) {
	pod = pod.DeepCopy()
	pod.Namespace = metav1.NamespaceDefault
	return cluster.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func review(pod *corev1.Pod) ([]byte, error) {
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	r := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(pod.GenerateName), Namespace: pod.Namespace, Operation: admissionv1.Create,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		},
	}
	r.Request.Object.Raw = raw
	return json.Marshal(r)
}

// size is the mean length of a review in bytes.
func (g *gun) size() int {
	sum := 0
	for _, body := range g.bodies {
		sum += len(body)
	}
	return sum / len(g.bodies)
}

// fire sends reviews at a steady rate, whether or not the ones before are
// answered, and returns how long each took, in order of length. Each must be
// answered with a patch.
func (g *gun) fire(ctx context.Context, rate int, duration time.Duration) ([]time.Duration, error) {
	n := int(duration.Seconds() * float64(rate))
	took := make([]time.Duration, n)
	errs := make([]error, n)
	var open sync.WaitGroup
	for i, start := 0, time.Now(); i < n; i++ {
		// Sleeping until a moment is inexact; what was late is sent at once.
		if wait := time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		body := g.bodies[g.next%len(g.bodies)]
		g.next += 7919 // VPAs in a wild order
		open.Go(func() { took[i], errs[i] = g.shoot(ctx, body) })
	}
	open.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

func (g *gun) shoot(ctx context.Context, body []byte) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	start := time.Now()
	response, err := g.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	took := time.Since(start)
	if err == nil && !bytes.Contains(answer, []byte(`"patch":`)) {
		err = fmt.Errorf("a review was answered without a patch: %s", answer)
	}
	return took, err
}
