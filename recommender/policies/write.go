package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	vpaclient "loadline.dev/loadline/pkg/generated/clientset/versioned/typed/autoscaling/v1"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/recommender/model"
)

const (
	// generatedRetention is how long the VPA of an unselected workload is kept, so that a brief
	// edit of a selector does not cost the history of a fleet.
	generatedRetention = 24 * time.Hour
	// minReadableTime is how long policies must be readable before a VPA is deleted, because a
	// reinstalled definition precedes its policies.
	minReadableTime = time.Hour
	// maxUnanswered namespaces without an answer of the API server end an iteration.
	maxUnanswered = 3
)

type pendingWrite struct {
	vpa       *vpav1.VerticalPodAutoscaler
	workload  *workload // nil: it does not exist
	setsOwner bool      // the write sets the workload as the owner
	result    string    // metric label
	send      func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error
}

// write alternates between namespaces and begins with another one in each iteration, so that none
// uses up all the time. It stops when a policy changes, because pending writes may be outdated.
func (k *Keeper) write(ctx context.Context, o *overview, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	due := k.pendingWrites(o, now)
	names := slices.Sorted(maps.Keys(due))
	if n := len(names); n > 0 {
		names = slices.Concat(names[k.iterations%n:], names[:k.iterations%n])
	}
	unanswered := 0
	for len(due) > 0 {
		for _, namespace := range names {
			turns := due[namespace]
			if len(turns) == 0 {
				delete(due, namespace)
				continue
			}
			if due[namespace] = turns[1:]; k.refusals.blocked(namespace, now) != "" {
				continue
			}
			if k.limiter.Wait(ctx) != nil || !k.Policies.SpecsUnchanged(o.policies) {
				return
			}
			err := k.execute(ctx, turns[0], now)
			if err == nil {
				continue
			}
			delete(due, namespace)
			if !client.IsWriteLimited(err) {
				unanswered++
			}
			if ctx.Err() != nil || unanswered >= maxUnanswered {
				return
			}
		}
	}
}

// pendingWrites puts the VPA that was last refused at the end, because it may always be.
func (k *Keeper) pendingWrites(o *overview, now time.Time) map[string][]pendingWrite {
	due := map[string][]pendingWrite{}
	add := func(t *pendingWrite) {
		if t != nil {
			due[t.vpa.Namespace] = append(due[t.vpa.Namespace], *t)
		}
	}
	for i := range o.workloads {
		w := &o.workloads[i]
		w.refused = k.refusals.blocked(w.Key.Namespace, now)
		switch stays := w.Policy != nil && (w.Policy.Paused || w.Policy.Unusable != ""); {
		case w.Policy != nil && !k.isResponsible(w.Policy): // left to another recommender
		case w.generated != nil && w.generated.DeletionTimestamp != nil:
		case w.generated != nil && !w.KeepVPA && !stays:
			add(k.expireVPA(w.generated, now))
		case w.generated != nil:
			add(k.updateVPA(w, o.policies.Object(w.Policy.Name), stays))
		case w.GenerateVPA:
			add(k.createVPA(w, o.policies.Object(w.Policy.Name)))
		default:
			w.refused = "" // no write is needed
		}
	}
	for _, v := range o.orphaned {
		if v.DeletionTimestamp == nil {
			add(k.expireVPA(v, now))
		}
	}
	for namespace, turns := range due {
		known := k.refusals[namespace]
		if at := slices.IndexFunc(turns, func(t pendingWrite) bool { return known != nil && t.vpa.Name == known.vpa }); at >= 0 {
			due[namespace] = slices.Concat(turns[at+1:], turns[:at+1])
		}
	}
	return due
}

// execute sends one write. On an error the rest of the namespace must wait: its write limit is used
// up or the API server does not answer.
func (k *Keeper) execute(ctx context.Context, t pendingWrite, now time.Time) error {
	log, v := klog.FromContext(ctx), t.vpa
	if t.setsOwner {
		if err := k.Workloads.Confirm(ctx, t.workload.Workload); err != nil {
			log.V(2).Info("Skipping VPA write: its workload has changed", "vpa", klog.KObj(v), "reason", err)
			return ctx.Err()
		}
	}
	err := t.send(ctx, k.Client.AutoscalingV1().VerticalPodAutoscalers(v.Namespace))
	switch {
	case err == nil:
		k.refusals.accepted(v.Namespace)
		if t.workload != nil {
			t.workload.refused = ""
		}
		k.count(t.result)
		log.V(2).Info("Wrote a VPA for a policy", "vpa", klog.KObj(v), "result", t.result)
	case ctx.Err() != nil:
		return err
	case client.IsWriteLimited(err):
		log.V(2).Info("VPA not written yet, retrying in the next iteration", "vpa", klog.KObj(v), "reason", err)
		return err
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), t.result != resultCreated && apierrors.IsNotFound(err):
		// The cache is outdated. The next iteration retries.
	case !isRefusal(err):
		log.Error(err, "Failed to write a generated VPA, retrying in the next iteration", "vpa", klog.KObj(v))
		k.count("error")
		return err
	default:
		problem := k.refusals.refused(v, err, now)
		if t.workload != nil {
			t.workload.refused = problem
		}
		log.Error(err, "API server refused a generated VPA, retrying later", "vpa", klog.KObj(v))
		k.count("refused")
	}
	return nil
}

// isRefusal reports whether an error is about the request, not about the API server.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

func (k *Keeper) count(result string) { k.Metrics.VPAs.WithLabelValues(result).Inc() }

// Results of writes, as metric labels.
const (
	resultCreated = "created"
	resultChanged = "changed"
	resultRemoved = "removed"
)

func (k *Keeper) desiredVPA(w *workload, policy *loadlinev1alpha1.SizingPolicy) *vpav1.VerticalPodAutoscaler {
	v := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Key.Namespace, Name: fleet.GeneratedVPAName(w.Key.Kind, w.Key.Group, w.Key.Name), Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: w.APIVersion, Kind: w.Key.Kind, Name: w.Key.Name, UID: w.UID}},
		},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:      &autoscalingv1.CrossVersionObjectReference{APIVersion: w.APIVersion, Kind: w.Key.Kind, Name: w.Key.Name},
			UpdatePolicy:   &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)},
			ResourcePolicy: resourcePolicy(policy),
		},
	}
	if k.Name != model.DefaultRecommender {
		v.Spec.Recommenders = []*vpav1.VerticalPodAutoscalerRecommenderSelector{{Name: k.Name}}
	}
	if m := policy.Spec.VPAMetadata; m != nil {
		maps.Copy(v.Labels, m.Labels)
		v.Annotations = maps.Clone(m.Annotations)
	}
	v.Labels[fleet.PolicyLabel] = policy.Name
	return v
}

// resourcePolicy includes the excluded containers in mode Off. It is nil if empty.
func resourcePolicy(policy *loadlinev1alpha1.SizingPolicy) *vpav1.PodResourcePolicy {
	r := &vpav1.PodResourcePolicy{}
	if policy.Spec.ResourcePolicy != nil {
		r = policy.Spec.ResourcePolicy.DeepCopy()
	}
	if policy.Spec.Containers != nil {
		off := vpav1.ContainerScalingModeOff
		for _, name := range policy.Spec.Containers.Exclude {
			r.ContainerPolicies = slices.DeleteFunc(r.ContainerPolicies, func(c vpav1.ContainerResourcePolicy) bool { return c.ContainerName == name })
			r.ContainerPolicies = append(r.ContainerPolicies, vpav1.ContainerResourcePolicy{ContainerName: name, Mode: &off})
		}
	}
	if len(r.ContainerPolicies) == 0 {
		return nil
	}
	for i := range r.ContainerPolicies {
		if p := &r.ContainerPolicies[i]; p.ControlledResources == nil { // Headlamp requires the explicit default
			p.ControlledResources = &[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
		}
	}
	return r
}

func (k *Keeper) createVPA(w *workload, policy *loadlinev1alpha1.SizingPolicy) *pendingWrite {
	v := k.desiredVPA(w, policy)
	if held, err := k.VPAs.VerticalPodAutoscalers(v.Namespace).Get(v.Name); err == nil {
		w.refused = fmt.Sprintf("VPA %s/%s cannot be generated for %s: another VPA has this name; rename or delete it", held.Namespace, held.Name, w.Key)
		return nil
	}
	return &pendingWrite{v, w, true, resultCreated, func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error {
		_, err := vpas.Create(ctx, v, metav1.CreateOptions{})
		return err
	}}
}

// updateVPA returns the write that makes a VPA match its policy, or nil. Unusable policies only
// remove the unselected marker. Labels and annotations that the policy does not set stay.
func (k *Keeper) updateVPA(w *workload, policy *loadlinev1alpha1.SizingPolicy, unusable bool) *pendingWrite {
	v, metadata, spec := w.generated, map[string]any{}, map[string]any{}
	if _, marked := v.Annotations[fleet.UnselectedAnnotation]; marked {
		metadata["annotations"] = map[string]any{fleet.UnselectedAnnotation: nil}
	}
	if !unusable && !client.VPARefused(v) { // the cached spec of a refused VPA is not the stored one
		k.differences(v, k.desiredVPA(w, policy), metadata, spec)
	}
	if len(metadata)+len(spec) == 0 {
		w.refused = ""
		return nil
	}
	return k.patch(v, w, metadata, spec)
}

func (k *Keeper) differences(v, want *vpav1.VerticalPodAutoscaler, metadata, spec map[string]any) {
	if missing := missingEntries(v.Labels, want.Labels); missing != nil {
		metadata["labels"] = missing
	}
	if missing := missingEntries(v.Annotations, want.Annotations); missing != nil {
		if marked, ok := metadata["annotations"].(map[string]any); ok {
			maps.Copy(missing, marked)
		}
		metadata["annotations"] = missing
	}
	if !slices.ContainsFunc(v.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == want.OwnerReferences[0].UID }) {
		metadata["ownerReferences"] = append(slices.Clone(v.OwnerReferences), want.OwnerReferences...)
	}
	if v.Spec.TargetRef.APIVersion != want.Spec.TargetRef.APIVersion {
		spec["targetRef"] = want.Spec.TargetRef
	}
	if v.Spec.UpdatePolicy == nil || v.Spec.UpdatePolicy.UpdateMode == nil || *v.Spec.UpdatePolicy.UpdateMode != vpav1.UpdateModeOff {
		spec["updatePolicy"] = want.Spec.UpdatePolicy
	}
	if v.Spec.StartupBoost != nil { // it has an effect even in mode Off
		spec["startupBoost"] = nil
	}
	if !apiequality.Semantic.DeepEqual(v.Spec.ResourcePolicy, client.BoundPolicy(want.Spec.ResourcePolicy)) {
		spec["resourcePolicy"] = want.Spec.ResourcePolicy
	}
	if !apiequality.Semantic.DeepEqual(v.Spec.Recommenders, want.Spec.Recommenders) {
		spec["recommenders"] = want.Spec.Recommenders
	}
}

// missingEntries is nil if no wanted entry is missing, or if the cache has dropped words.
func missingEntries(words, wanted map[string]string) map[string]any {
	var add map[string]any
	if client.Dropped(words) {
		return nil
	}
	for key, value := range wanted {
		if has, found := words[key]; !found || has != value {
			if add == nil {
				add = map[string]any{}
			}
			add[key] = value
		}
	}
	return add
}

// patch returns a write that fails if the VPA has changed since it was read.
func (k *Keeper) patch(v *vpav1.VerticalPodAutoscaler, w *workload, metadata, spec map[string]any) *pendingWrite {
	metadata["uid"], metadata["resourceVersion"] = v.UID, v.ResourceVersion
	body := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	return &pendingWrite{v, w, metadata["ownerReferences"] != nil, resultChanged, func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error {
		text, err := json.Marshal(body)
		if err == nil {
			_, err = vpas.Patch(ctx, v.Name, types.MergePatchType, text, metav1.PatchOptions{})
		}
		return err
	}}
}

// expireVPA returns the write that marks the VPA of an unselected workload, or deletes it after
// generatedRetention. It is nil while policies are unreadable.
func (k *Keeper) expireVPA(v *vpav1.VerticalPodAutoscaler, now time.Time) *pendingWrite {
	if k.readableSince.IsZero() || !k.serves(v) {
		return nil
	}
	since, err := time.Parse(time.RFC3339, v.Annotations[fleet.UnselectedAnnotation])
	if err != nil || since.After(now) { // after a clock change, or written by a user
		return k.patch(v, nil, map[string]any{"annotations": map[string]any{fleet.UnselectedAnnotation: now.UTC().Format(time.RFC3339)}}, map[string]any{})
	}
	if now.Sub(since) < generatedRetention || now.Sub(k.readableSince) < minReadableTime {
		return nil
	}
	return &pendingWrite{v, nil, false, resultRemoved, func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error {
		return vpas.Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}})
	}}
}

func (k *Keeper) serves(v *vpav1.VerticalPodAutoscaler) bool {
	return (&model.Roster{Name: k.Name, Namespaces: k.Namespaces}).Serves(v)
}
