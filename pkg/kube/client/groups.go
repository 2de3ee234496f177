package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	admissionregistrationv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	autoscalingv2 "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	batchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// groups is a kubernetes.Interface with only the API groups in use. All fifty would exceed the size
// budget of the binaries. A missing group is a nil interface that panics at its first use: add it
// to this file.
type groups struct {
	kubernetes.Interface

	admissionregistration *admissionregistrationv1.AdmissionregistrationV1Client
	apps                  *appsv1.AppsV1Client
	autoscaling           *autoscalingv2.AutoscalingV2Client
	batch                 *batchv1.BatchV1Client
	coordination          *coordinationv1.CoordinationV1Client
	core                  *corev1.CoreV1Client
	policy                *policyv1.PolicyV1Client
	discovery             *discovery.DiscoveryClient
}

// ErrThrottled is returned for an unsent request: --kube-api-qps leaves no time for it.
var ErrThrottled = errors.New("no time left under --kube-api-qps")

// limiter distinguishes its own errors from errors of a server.
type limiter struct{ flowcontrol.RateLimiter }

// Wait waits for a token, or returns ErrThrottled.
func (l limiter) Wait(ctx context.Context) error {
	if err := l.RateLimiter.Wait(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrThrottled, err)
	}
	return nil
}

// newGroups uses one connection pool and one rate limit for all groups.
func newGroups(config *rest.Config) (*groups, error) {
	shared := rest.CopyConfig(config)
	if shared.QPS > 0 {
		if shared.Burst <= 0 {
			return nil, fmt.Errorf("--kube-api-burst=%d: must be at least 1 while --kube-api-qps limits the rate", shared.Burst)
		}
		shared.RateLimiter = limiter{flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)}
	}
	shared.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetryTransport{next} })
	httpClient, err := rest.HTTPClientFor(shared)
	if err != nil {
		return nil, err
	}
	var g groups
	var problems [8]error
	g.admissionregistration, problems[0] = admissionregistrationv1.NewForConfigAndClient(shared, httpClient)
	g.apps, problems[1] = appsv1.NewForConfigAndClient(shared, httpClient)
	g.batch, problems[2] = batchv1.NewForConfigAndClient(shared, httpClient)
	g.coordination, problems[3] = coordinationv1.NewForConfigAndClient(shared, httpClient)
	g.core, problems[4] = corev1.NewForConfigAndClient(shared, httpClient)
	g.discovery, problems[5] = discovery.NewDiscoveryClientForConfigAndClient(shared, httpClient)
	g.policy, problems[6] = policyv1.NewForConfigAndClient(shared, httpClient)
	g.autoscaling, problems[7] = autoscalingv2.NewForConfigAndClient(shared, httpClient)
	return &g, errors.Join(problems[:]...)
}

// AdmissionregistrationV1 returns the client of webhook configurations.
func (g *groups) AdmissionregistrationV1() admissionregistrationv1.AdmissionregistrationV1Interface {
	return g.admissionregistration
}

// AppsV1 returns the client of Deployments, ReplicaSets, StatefulSets and DaemonSets.
func (g *groups) AppsV1() appsv1.AppsV1Interface { return g.apps }

// AutoscalingV2 returns the client of HorizontalPodAutoscalers.
func (g *groups) AutoscalingV2() autoscalingv2.AutoscalingV2Interface { return g.autoscaling }

// BatchV1 returns the client of Jobs and CronJobs.
func (g *groups) BatchV1() batchv1.BatchV1Interface { return g.batch }

// CoordinationV1 returns the client of Leases.
func (g *groups) CoordinationV1() coordinationv1.CoordinationV1Interface { return g.coordination }

// CoreV1 returns the client of pods, evictions, events, secrets and other core objects.
func (g *groups) CoreV1() corev1.CoreV1Interface { return g.core }

// PolicyV1 returns the client of PodDisruptionBudgets.
func (g *groups) PolicyV1() policyv1.PolicyV1Interface { return g.policy }

// Discovery returns the discovery client.
func (g *groups) Discovery() discovery.DiscoveryInterfaces { return g.discovery }

type withoutRetriesKey struct{}

// WithoutRetries returns a context whose requests are sent once. Otherwise the client library
// blocks and retries up to ten times after a response with a Retry-After header.
func WithoutRetries(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutRetriesKey{}, true)
}

// noRetryTransport removes the Retry-After header from responses for a context of WithoutRetries.
type noRetryTransport struct{ http.RoundTripper }

// RoundTrip sends a request.
func (o noRetryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(r)
	if response != nil && r.Context().Value(withoutRetriesKey{}) != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper returns the next round tripper, for the client library.
func (o noRetryTransport) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }
