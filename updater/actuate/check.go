package actuate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/fairwork"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/updater/snapshot"
)

// checkTimeout bounds all requests of one check. An unresponsive admission webhook with
// failurePolicy Ignore takes 10 seconds by default. Checks are shorter in a namespace turn.
const checkTimeout = 15 * time.Second

// BlockedError is the error of a disruption that a check of Checker or Cluster blocks.
type BlockedError struct {
	Reason reason.Reason
	Cause  error
}

// Error returns the reason and its cause.
func (h *BlockedError) Error() string { return fmt.Sprintf("%s: %v", h.Reason, h.Cause) }

func (h *BlockedError) concernsReplacement() bool {
	return h.Reason == reason.ReplacementRefused || h.Reason == reason.ReplacementUnchanged ||
		h.Reason == reason.ReplacementUnknown
}

// Unwrap returns the cause.
func (h *BlockedError) Unwrap() error { return h.Cause }

// Clock provides the current time.
type Clock interface{ Now() time.Time }

// Now returns the time of a clock. A nil clock means time.Now.
func Now(clock Clock) time.Time {
	if clock == nil {
		return time.Now()
	}
	return clock.Now()
}

// Checker makes the last checks before a disruption against the API server: the owner has enough
// pods, and admission accepts a replacement of the same revision. It is safe for concurrent use.
type Checker struct {
	Kube    kubernetes.Interface
	Targets *target.Resolver // replicas and selectors of custom workloads; may be nil
	Config  *disruption.Config
	Clock   Clock // nil: time.Now

	pauses   pauses
	siblings siblingCache
}

// Paused returns the result of an earlier check that must not be repeated yet, or nil.
func (c *Checker) Paused(change Change) error { return c.pauses.active(change, Now(c.Clock)) }

// Check returns a *BlockedError if a pod must not be evicted, and an IsGone error if it is gone.
func (c *Checker) Check(ctx context.Context, change Change) error {
	if metav1.GetControllerOfNoCopy(change.Object) == nil {
		return &BlockedError{Reason: reason.NoOwner, Cause: errors.New("the pod has no controller")}
	}
	shortened := fairwork.Shortens(ctx, checkTimeout)
	limited, cancel := fairwork.Limit(client.WithoutRetries(ctx), checkTimeout)
	defer cancel()
	err := c.check(limited, change)
	if errors.Is(err, client.ErrThrottled) || ctx.Err() != nil {
		return ErrRateLimited // the iteration has no time left
	}
	if shortened && limited.Err() != nil {
		return ErrTurnEnded
	}
	if client.IsWriteLimited(err) { // nothing was checked
		return err
	}
	var held *BlockedError
	_ = errors.As(err, &held) // nil: the pod may be evicted
	c.pauses.record(change, held, Now(c.Clock))
	return err
}

// CheckRestart returns nil if a resize may restart a container, given the owner's current pods.
func (c *Checker) CheckRestart(ctx context.Context, change Change) error {
	if metav1.GetControllerOfNoCopy(change.Object) == nil {
		return &BlockedError{Reason: reason.NoOwner, Cause: errors.New("the pod has no controller")}
	}
	limited, cancel := fairwork.Limit(client.WithoutRetries(ctx), checkTimeout)
	defer cancel()
	_, _, err := c.readLive(limited, change)
	switch {
	case errors.Is(err, client.ErrThrottled), ctx.Err() != nil:
		return ErrRateLimited
	case IsGone(err):
		return snapshot.ErrStale
	}
	return err
}

func (c *Checker) check(ctx context.Context, change Change) error {
	owner, evicted, err := c.readLive(ctx, change)
	if err != nil {
		return err
	}
	if convert.Protected(evicted) == reason.ProtectedFromEviction { // since the plan was made
		return &BlockedError{Reason: reason.ProtectedFromEviction, Cause: errors.New("an annotation of the pod now forbids evictions")}
	}
	return c.checkReplacement(ctx, owner, evicted, change)
}

// readLive returns the current owner and pod, or an error if its budget denies a disruption.
func (c *Checker) readLive(ctx context.Context, change Change) (*controller, *corev1.Pod, error) {
	ref := metav1.GetControllerOfNoCopy(change.Object)
	owner, err := readController(ctx, c.Kube, c.Targets, change, *ref)
	switch {
	case errors.Is(err, errNoOwner):
		return nil, nil, &BlockedError{Reason: reason.NoOwner, Cause: fmt.Errorf("%s %s: %w", ref.Kind, ref.Name, err)}
	case err != nil:
		return nil, nil, &BlockedError{Reason: reason.ReplacementUnknown, Cause: fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, shorten(err))}
	}
	known, pod, err := c.siblings.get(ctx, c.Kube, owner, change.Object, Now(c.Clock))
	switch {
	case err != nil:
		return nil, nil, &BlockedError{Reason: reason.ReplacementUnknown, Cause: fmt.Errorf("list the pods of %s %s: %w", ref.Kind, ref.Name, shorten(err))}
	case pod == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, change.Object.Name)
	case !known.all: // the plan counted the pods in the caches
		return owner, pod, nil
	}
	return owner, pod, c.checkBudget(owner, known.pods, pod, change)
}

func (c *Checker) checkBudget(owner *controller, pods []corev1.Pod, evicted *corev1.Pod, change Change) error {
	settings := change.Autoscaler.Core(false)
	v := disruption.VPA{MinReplicas: settings.MinReplicas, Groups: []disruption.Group{{Replicas: owner.replicas}}}
	core := stateOf(evicted)
	v.Pods = append(v.Pods, core)
	terminating := 0
	for i := range pods {
		switch pod := &pods[i]; {
		case pod.UID == evicted.UID, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		case pod.DeletionTimestamp != nil:
			terminating++
		default:
			v.Pods = append(v.Pods, stateOf(pod))
		}
	}
	if owner.replicas == disruption.Unknown { // a fixed count would shrink with each eviction
		v.Groups[0].Replicas = len(v.Pods) + terminating
	}
	budget := disruption.NewBudget(&v, *c.Config)
	denied := budget.Denies(&core)
	if denied == "" && change.Cause.Shares() && core.Ready && readyOf(v.Pods) == 1 {
		denied = reason.NoBudget // sharing must not take a workload's only ready pod
	}
	if denied != "" {
		return &BlockedError{Reason: denied, Cause: fmt.Errorf("%s %s has %d live pods now, %d of them ready", owner.ref.Kind, owner.ref.Name, len(v.Pods), readyOf(v.Pods))}
	}
	return nil
}

func stateOf(pod *corev1.Pod) disruption.Pod {
	ready, _ := convert.Ready(pod)
	return disruption.Pod{UID: string(pod.UID), Ready: ready, Pending: pod.Status.Phase == corev1.PodPending}
}

func readyOf(pods []disruption.Pod) (ready int) {
	for i := range pods {
		if pods[i].Ready {
			ready++
		}
	}
	return ready
}

// checkReplacement creates the replacement in a dry run, through the full admission. If the webhook
// did not process the pod, it sets the target itself and tries again.
func (c *Checker) checkReplacement(ctx context.Context, owner *controller, evicted *corev1.Pod, change Change) error {
	pod := replacement(owner, evicted)
	created, err := c.create(ctx, pod)
	if refusal := replacementError(err, pod.GenerateName); refusal != nil {
		return refusal
	}
	// Not processed by the webhook, or a quota also counts the evicted pod.
	if err != nil || created.Annotations[convert.ObservedAnnotation] == "" {
		created, err = c.create(ctx, withTargets(pod, change.Autoscaler))
	}
	if refusal := replacementError(err, pod.GenerateName); refusal != nil {
		return refusal
	}
	excess, exceeds := exceededQuota(err)
	switch {
	case exceeds:
		if err := c.checkQuotas(ctx, excess, withTargets(recreated(evicted), change.Autoscaler), evicted); err != nil {
			return err
		}
		created = nil
	case err != nil:
		created = nil
	case !takesEffect(change, evicted, created):
		return &BlockedError{Reason: reason.ReplacementUnchanged, Cause: errors.New("the dry run of the replacement does not have the recommended resources")}
	}
	if changed := owner.changedPart(evicted, created); changed != "" {
		return &BlockedError{Reason: reason.OlderRevision, Cause: fmt.Errorf("the template of %s %s differs from the pod: %s", owner.ref.Kind, owner.ref.Name, changed)}
	}
	return nil
}

func (c *Checker) create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := c.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if isCreateForbidden(err) { // applies to all pods of the namespace
		c.pauses.holdNamespace(pod.Namespace, &BlockedError{Reason: reason.ReplacementUnknown, Cause: errors.New("the updater may not create pods in dry runs: its role lacks the verb create on pods")}, Now(c.Clock))
	}
	return created, err
}

// Evicted records an eviction, so that later checks count the pod as terminating.
func (c *Checker) Evicted(pod *corev1.Pod) { c.siblings.markTerminating(pod, Now(c.Clock)) }

// AdmittedPod returns the replacement of a pod with the resources that the webhook would set now.
func (c *Checker) AdmittedPod(ctx context.Context, change Change) (*corev1.Pod, error) {
	ref := metav1.GetControllerOfNoCopy(change.Object)
	if ref == nil {
		return nil, errNoOwner
	}
	ctx, cancel := context.WithTimeout(client.WithoutRetries(ctx), checkTimeout)
	defer cancel()
	owner, err := readController(ctx, c.Kube, c.Targets, change, *ref)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	return c.create(ctx, replacement(owner, change.Object))
}

// takesEffect reports whether the replacement moves a request, or else a limit, in the planned
// direction. It is true for an eviction without changes, such as a move.
func takesEffect(change Change, evicted, created *corev1.Pod) bool {
	requests := func(c policy.Container) resources.List { return c.Requests }
	limits := func(c policy.Container) resources.List { return c.Limits }
	planned, effective := compare(change, evicted, created, requests)
	if !planned {
		planned, effective = compare(change, evicted, created, limits)
	}
	return effective || !planned
}

func compare(change Change, evicted, created *corev1.Pod, list func(policy.Container) resources.List) (planned, effective bool) {
	before, after := convert.Pod(evicted).Containers, convert.Pod(created).Containers
	for _, f := range change.Containers {
		named := func(c policy.Container) bool { return c.Name == f.Name }
		i, j := slices.IndexFunc(before, named), slices.IndexFunc(after, named)
		if i < 0 || j < 0 {
			continue
		}
		target := list(policy.Container{Requests: f.Requests, Limits: f.Limits})
		_, boosted := created.Annotations[convert.BoostAnnotationPrefix+f.Name]
		for k := range resources.Kind(resources.Kinds) {
			current := list(before[i]).Value(k)
			if direction := cmp.Compare(target.Value(k), current); target.Has(k) && direction != 0 {
				planned = true
				effective = effective || boosted && k == resources.CPU || cmp.Compare(list(after[j]).Value(k), current) == direction
			}
		}
	}
	return planned, effective
}

// replacementError ignores refusals by quotas, because these count the evicted pod as well.
func replacementError(err error, generateName string) error {
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // each attempt generates a new name
		return nil
	case client.IsWriteLimited(err):
		return err
	case isUndecided(err):
		return &BlockedError{Reason: reason.ReplacementUnknown, Cause: fmt.Errorf("create the replacement in a dry run: %w", shorten(err))}
	}
	if _, exceeds := exceededQuota(err); exceeds {
		return nil
	}
	return &BlockedError{Reason: reason.ReplacementRefused, Cause: errors.New(stableText(err, generateName))}
}

func isUndecided(err error) bool {
	if deniedByAdmission(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code < 400 || code >= 500 ||
		apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsConflict(err) ||
		isCreateForbidden(err) || strings.Contains(err.Error(), "does not support dry run")
}

// createForbidden is anchored, because messages of admission quote texts of pods.
var createForbidden = regexp.MustCompile(`^pods is forbidden: User "[^"]*" cannot create resource "pods"`)

func isCreateForbidden(err error) bool {
	return apierrors.IsForbidden(err) && createForbidden.MatchString(err.Error())
}

// deniedByAdmission detects webhooks and admission policies, which may use any status code.
func deniedByAdmission(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (strings.Contains(err.Error(), "denied the request") || strings.Contains(err.Error(), " denied request: "))
}

// stableText truncates and omits the generated pod name, so that events are aggregated.
func stableText(err error, generateName string) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		if name := status.Status().Details.Name; strings.HasPrefix(name, generateName) {
			text = strings.ReplaceAll(text, name, generateName)
		}
	}
	return truncate(text)
}

// maxCauseLength is in bytes. Admission may name each of thousands of containers.
const maxCauseLength = 1000

func truncate(text string) string {
	if len(text) <= maxCauseLength {
		return text
	}
	return strings.ToValidUTF8(text[:maxCauseLength], "") + "..."
}

// shorten bounds the text of an error to maxCauseLength. A longer error loses its chain.
func shorten(err error) error {
	if text := err.Error(); len(text) > maxCauseLength {
		return errors.New(truncate(text))
	}
	return err
}
