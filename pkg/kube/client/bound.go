package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/lease"
)

// Bounds of cached objects. For most fields the API server accepts up to 1.5 MiB, from any user
// with write access to a namespace.
const (
	maxRequirements = 100      // of a label selector
	maxSelector     = 8 << 10  // bytes
	maxLabels       = 100      // of an object
	maxLabelBytes   = 8 << 10  // of an object, keys included
	maxAnnotations  = 64 << 10 // bytes of an object, keys included
	maxAnnotation   = 1 << 10  // bytes of one value without a limit of its own
	maxContainers   = 300      // of a pod, excluding init containers
	maxResources    = 16       // in a resource list
	maxPodResources = 1 << 10  // in all requests and limits of a pod together
	maxResourceName = 32       // bytes, averaged over a list
	maxOwners       = 8
	maxEntries      = 20      // of a list that the API server bounds by its validation
	maxReference    = 512     // bytes of each field of a reference: names of objects have at most 253
	maxMessage      = 1 << 10 // bytes of a pod condition

	// valueOverhead is the memory of a value in a selector besides its bytes.
	valueOverhead = 16
)

// MaxLabels describes the limit of cached labels.
var MaxLabels = fmt.Sprintf("%d labels or %d KiB", maxLabels, maxLabelBytes>>10)

// ErrSelectorTooLarge is returned for an oversized label selector, which matches nothing.
var ErrSelectorTooLarge = fmt.Errorf("selector exceeds %d requirements or %d KiB", maxRequirements, maxSelector>>10)

// droppedKey marks oversized labels, annotations and selectors. No API server accepts an empty key.
const droppedKey = ""

var (
	droppedLabels   = map[string]string{droppedKey: ""}
	droppedSelector = &metav1.LabelSelector{MatchLabels: droppedLabels}
)

// Dropped reports whether a cache dropped labels or annotations of an object because of their size.
func Dropped(labels map[string]string) bool {
	_, dropped := labels[droppedKey]
	return dropped
}

// Selector parses a label selector. An oversized or dropped one is ErrSelectorTooLarge.
func Selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s != nil && (Dropped(s.MatchLabels) || tooLarge(s)) {
		return nil, ErrSelectorTooLarge
	}
	if s != nil && len(s.MatchExpressions) == 0 && len(s.MatchLabels) > 0 {
		return labels.ValidatedSetSelector(s.MatchLabels), nil // the API server has validated them
	}
	return metav1.LabelSelectorAsSelector(s)
}

// ParseSelector is Selector for a text.
func ParseSelector(text string) (labels.Selector, error) {
	if len(text) > maxSelector {
		return nil, ErrSelectorTooLarge
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, errors.New(truncate(err.Error(), maxReference)) // the error quotes the selector
	}
	if requirements, _ := selector.Requirements(); len(requirements) > maxRequirements {
		return nil, ErrSelectorTooLarge
	}
	return selector, nil
}

// BoundSelectorText truncates a selector for a cache. ParseSelector still rejects an oversized one.
func BoundSelectorText(text string) string { return truncate(text, maxSelector+1) }

// BoundSelector replaces an oversized selector for a cache. Selector rejects the replacement.
func BoundSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s != nil && tooLarge(s) {
		return droppedSelector
	}
	return s
}

func tooLarge(s *metav1.LabelSelector) bool {
	values := 0
	for i := range s.MatchExpressions {
		values += len(s.MatchExpressions[i].Values)
	}
	return len(s.MatchLabels)+len(s.MatchExpressions) > maxRequirements || s.Size()+valueOverhead*values > maxSelector
}

// LabelsTooLarge reports oversized or dropped labels. Such an object may have any label.
func LabelsTooLarge(labels map[string]string) bool {
	return len(labels) > maxLabels || Dropped(labels) || mapSize(labels) > maxLabelBytes
}

func boundLabels(labels map[string]string) map[string]string {
	if LabelsTooLarge(labels) {
		return droppedLabels
	}
	return labels
}

func internLabels(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	kept := make(map[string]string, len(labels))
	for key, value := range labels {
		kept[intern(key)] = intern(value)
	}
	return kept
}

func mapSize(m map[string]string) (n int) {
	for key, value := range m {
		n += len(key) + len(value)
	}
	return n
}

// firstN does not retain the other elements in memory.
func firstN[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[:n])
}

// truncate does not retain the rest of the text in memory.
func truncate[T ~string](text T, limit int) T {
	if len(text) <= limit {
		return text
	}
	return T(strings.Clone(string(text[:limit])))
}

func boundString[T ~string](text T) T { return truncate(intern(text), maxReference) }

func boundOptionalString[T ~string](text *T) *T {
	if text == nil || len(*text) <= maxReference {
		return text
	}
	return new(boundString(*text))
}

func boundStrings[T ~string](all []T, n int) []T {
	kept := slices.Clone(all[:min(len(all), n)])
	for i := range kept {
		kept[i] = boundString(kept[i])
	}
	return kept
}

// knownAnnotations keeps annotations that the programs read, within their limits. The result is nil
// only for nil input, because a patch must then create the map.
func knownAnnotations(annotations map[string]string) map[string]string {
	if annotations == nil {
		return nil
	}
	kept, size := map[string]string{}, 0
	for key, value := range annotations {
		if strings.HasPrefix(key, "vpa") || strings.HasPrefix(key, "loadline.dev/") || convert.AnnotationLimit(key) > 0 {
			kept[key] = boundAnnotation(key, value)
			size += len(key) + len(kept[key])
		}
	}
	if size <= maxAnnotations {
		return kept
	}
	// Drop unknown keys first. All known keys fit.
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		if size > maxAnnotations && convert.AnnotationLimit(key) == 0 {
			size -= len(key) + len(kept[key])
			delete(kept, key)
		}
	}
	return kept
}

// boundAnnotation truncates a value so that its reader still rejects it.
func boundAnnotation(key, value string) string {
	return truncate(value, cmp.Or(convert.AnnotationLimit(key), maxAnnotation)+1)
}

func policyAnnotations(annotations map[string]string) (kept map[string]string) {
	for _, key := range fleet.Annotations() {
		if value, has := annotations[key]; has {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = boundAnnotation(key, value)
		}
	}
	return kept
}

// BoundOwners keeps API version, kind and name, and only the controller above maxOwners.
func BoundOwners(owners []metav1.OwnerReference) []metav1.OwnerReference {
	if len(owners) == 0 {
		return nil
	}
	if len(owners) > maxOwners {
		at := max(slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }), 0)
		owners = owners[at : at+1]
	}
	trimmed := make([]metav1.OwnerReference, len(owners))
	for i, o := range owners {
		trimmed[i] = metav1.OwnerReference{APIVersion: boundString(o.APIVersion), Kind: boundString(o.Kind), Name: boundString(o.Name)}
		if o.Controller != nil && *o.Controller {
			trimmed[i].Controller = &isController
		}
	}
	return trimmed
}

// fullOwners keeps the first maxOwners complete references without long ones, for patches.
func fullOwners(owners []metav1.OwnerReference) []metav1.OwnerReference {
	long := func(o metav1.OwnerReference) bool {
		return len(o.APIVersion)+len(o.Kind)+len(o.Name)+len(o.UID) > 2*maxReference
	}
	if owners = firstN(owners, maxOwners); slices.ContainsFunc(owners, long) {
		owners = slices.DeleteFunc(slices.Clone(owners), long)
	}
	return owners
}

// isController must not be changed, because all cached owners refer to it.
var isController = true

// boundContainers returns at most maxContainers containers. The last one then has no name and the
// total CPU and memory of all dropped ones, so that the sum of the pod is unchanged.
func boundContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) <= maxContainers {
		return containers
	}
	var rest corev1.Container
	for i := maxContainers - 1; i < len(containers); i++ {
		addResources(&rest.Resources.Requests, containers[i].Resources.Requests)
		addResources(&rest.Resources.Limits, containers[i].Resources.Limits)
	}
	return append(slices.Clone(containers[:maxContainers-1]), rest)
}

var mainNames = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

func addResources(sum *corev1.ResourceList, list corev1.ResourceList) {
	for _, name := range mainNames {
		q, has := list[name]
		if !has {
			continue
		}
		if *sum == nil {
			*sum = corev1.ResourceList{}
		}
		total := (*sum)[name]
		total.Add(q)
		(*sum)[name] = total
	}
}

// boundList keeps only CPU and memory if a list has too many or too long names.
func boundList(list corev1.ResourceList) corev1.ResourceList { return boundListTo(list, maxResources) }

func boundListTo(list corev1.ResourceList, limit int) corev1.ResourceList {
	names := 0
	for name := range list {
		names += len(name)
	}
	if len(list) <= limit && names <= maxResourceName*limit {
		return list
	}
	return mainResources(list)
}

func mainResources(list corev1.ResourceList) corev1.ResourceList {
	kept := corev1.ResourceList{}
	for _, name := range mainNames {
		if q, has := list[name]; has {
			kept[name] = q
		}
	}
	if list == nil || len(kept) == len(list) {
		return list
	}
	return kept
}

// resourcesEach returns the maximum length of each resource list in a pod with n containers.
func resourcesEach(n int) int { return min(maxPodResources/(2*max(n, 1)), maxResources) }

func boundResources(r corev1.ResourceRequirements, limit int) corev1.ResourceRequirements {
	kept := corev1.ResourceRequirements{Requests: boundListTo(r.Requests, limit), Limits: boundListTo(r.Limits, limit)}
	if len(r.Claims) > 0 {
		kept.Claims = placeholderClaims
	}
	return kept
}

var placeholderClaims = []corev1.ResourceClaim{{}}

func boundPodResources(r *corev1.ResourceRequirements, limit int) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	bounded := boundResources(*r, limit)
	return &bounded
}

func boundResizePolicy(all []corev1.ContainerResizePolicy) (kept []corev1.ContainerResizePolicy) {
	long := func(p corev1.ContainerResizePolicy) bool {
		return len(p.ResourceName)+len(p.RestartPolicy) > maxReference
	}
	if len(all) <= 2 && !slices.ContainsFunc(all, long) {
		return all
	}
	for _, name := range mainNames {
		if i := slices.IndexFunc(all, func(p corev1.ContainerResizePolicy) bool { return p.ResourceName == name }); i >= 0 {
			kept = append(kept, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: boundString(all[i].RestartPolicy)})
		}
	}
	return kept
}

// crossNamespace replaces any affinity that refers to other namespaces. It must not be changed.
var crossNamespace = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
	RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{NamespaceSelector: &metav1.LabelSelector{}}}}}

// disruptionRules keeps the rules that decide whether an evicted pod of a Job counts as failed.
func disruptionRules(p *batchv1.PodFailurePolicy) *batchv1.PodFailurePolicy {
	if p == nil {
		return nil
	}
	kept := &batchv1.PodFailurePolicy{}
	for _, rule := range p.Rules[:min(len(p.Rules), maxEntries)] {
		trimmed := batchv1.PodFailurePolicyRule{Action: boundString(rule.Action)}
		if exits := rule.OnExitCodes; exits != nil {
			trimmed.OnExitCodes = &batchv1.PodFailurePolicyOnExitCodesRequirement{
				Operator: boundString(exits.Operator), Values: firstN(exits.Values, maxExitCodes),
			}
		}
		for _, c := range rule.OnPodConditions[:min(len(rule.OnPodConditions), maxEntries)] {
			if c.Type == corev1.DisruptionTarget {
				trimmed.OnPodConditions = append(trimmed.OnPodConditions,
					batchv1.PodFailurePolicyOnPodConditionsPattern{Type: corev1.DisruptionTarget, Status: boundString(c.Status)})
			}
		}
		kept.Rules = append(kept.Rules, trimmed)
	}
	return kept
}

const maxExitCodes = 255

func withTemplateGeneration(kept metav1.ObjectMeta, annotations map[string]string) metav1.ObjectMeta {
	if generation, has := annotations[appsv1.DeprecatedTemplateGeneration]; has {
		kept.Annotations = maps.Clone(kept.Annotations)
		metav1.SetMetaDataAnnotation(&kept, appsv1.DeprecatedTemplateGeneration, boundString(generation))
	}
	return kept
}

const (
	// writeTimeout applies unless the caller sets an earlier deadline.
	writeTimeout = 30 * time.Second
	// readTimeout is long enough to list all objects of a kind at start.
	readTimeout = 2 * time.Minute
)

// deadlineTransport implements Bounded.
type deadlineTransport struct{ http.RoundTripper }

// Bounded returns a copy of a configuration for clients that New does not build. Every request
// except a watch has a deadline, and writes fail in the context of a leader that may have a
// successor.
func Bounded(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return deadlineTransport{next} })
	return own
}

// RoundTrip sends a request with a deadline.
func (b deadlineTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	limit := writeTimeout
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if r.URL.Query().Has("watch") {
			return b.RoundTripper.RoundTrip(r)
		}
		limit = readTimeout
	} else if err := lease.Check(r.Context()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), limit, fmt.Errorf("the API server did not answer within %s", limit))
	response, err := b.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &boundedBody{response.Body, cancel}
	return response, nil
}

// WrappedRoundTripper returns the next round tripper, for the client library.
func (b deadlineTransport) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

type boundedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body.
func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
