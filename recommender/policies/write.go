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
	// linger is how long a made VPA stays that nobody selects any more: a selector that is
	// edited for a moment must not cost the history of a fleet.
	linger = 24 * time.Hour
	// leastReadable is for how long policies must have been readable before a VPA is removed:
	// who installs the definitions again creates the policies a while later.
	leastReadable = time.Hour
	// maxUnanswered is the number of namespaces without an answer of the API server after which a pass ends.
	maxUnanswered = 3
)

// turn is a write of a VPA that is due.
type turn struct {
	vpa      *vpav1.VerticalPodAutoscaler
	workload *workload // nil: it is not there
	owns     bool      // the write says that the workload owns the VPA
	result   string    // for the metric
	send     func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error
}

// write brings VPAs to what policies want. The namespaces take turns, and each pass begins with another one, so that
// none can use up all the time. When a policy changes the pass ends: what is due may not be wanted any more.
func (k *Keeper) write(ctx context.Context, o *overview, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	due := k.due(o, now)
	names := slices.Sorted(maps.Keys(due))
	if n := len(names); n > 0 {
		names = slices.Concat(names[k.passes%n:], names[:k.passes%n])
	}
	unanswered := 0
	for len(due) > 0 {
		for _, namespace := range names {
			turns := due[namespace]
			if len(turns) == 0 {
				delete(due, namespace)
				continue
			}
			if due[namespace] = turns[1:]; k.refusals.waiting(namespace, now) != "" {
				continue
			}
			if k.limiter.Wait(ctx) != nil || !k.Policies.Holds(o.policies) {
				return
			}
			err := k.take(ctx, turns[0], now)
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

// due returns what is to be written, by namespace. In each the one that was refused last comes
// last: it may be refused for ever, and the others not.
func (k *Keeper) due(o *overview, now time.Time) map[string][]turn {
	due := map[string][]turn{}
	add := func(t *turn) {
		if t != nil {
			due[t.vpa.Namespace] = append(due[t.vpa.Namespace], *t)
		}
	}
	for i := range o.workloads {
		w := &o.workloads[i]
		w.refused = k.refusals.waiting(w.Key.Namespace, now)
		switch stays := w.Policy != nil && (w.Policy.Paused || w.Policy.Unusable != ""); {
		case w.Policy != nil && !k.mine(w.Policy): // another recommender does it
		case w.made != nil && w.made.DeletionTimestamp != nil:
		case w.made != nil && !w.KeepVPA && !stays:
			add(k.unselected(w.made, now))
		case w.made != nil:
			add(k.keep(w, o.policies.Object(w.Policy.Name), stays))
		case w.MakeVPA:
			add(k.make(w, o.policies.Object(w.Policy.Name)))
		default:
			w.refused = "" // nothing is wanted
		}
	}
	for _, v := range o.lost {
		if v.DeletionTimestamp == nil {
			add(k.unselected(v, now))
		}
	}
	for namespace, turns := range due {
		known := k.refusals[namespace]
		if at := slices.IndexFunc(turns, func(t turn) bool { return known != nil && t.vpa.Name == known.vpa }); at >= 0 {
			due[namespace] = slices.Concat(turns[at+1:], turns[:at+1])
		}
	}
	return due
}

// take sends one write. It returns an error if the rest of the namespace must wait for the next pass,
// because of the write limit of the namespace or because the API server does not answer.
func (k *Keeper) take(ctx context.Context, t turn, now time.Time) error {
	log, v := klog.FromContext(ctx), t.vpa
	if t.owns {
		if err := k.Workloads.Confirm(ctx, t.workload.Workload); err != nil {
			log.V(2).Info("No VPA is written: its workload is not as it was", "vpa", klog.KObj(v), "reason", err)
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
		log.V(2).Info("VPA not written yet, trying again in the next pass", "vpa", klog.KObj(v), "reason", err)
		return err
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), t.result != resultMade && apierrors.IsNotFound(err):
		// It is not as it was: the next pass sees how.
	case !isRefusal(err):
		log.Error(err, "Cannot write the VPAs of policies, trying again in the next pass", "vpa", klog.KObj(v))
		k.count("error")
		return err
	default:
		problem := k.refusals.refused(v, err, now)
		if t.workload != nil {
			t.workload.refused = problem
		}
		log.Error(err, "The VPA of a workload was refused, trying again later", "vpa", klog.KObj(v))
		k.count("refused")
	}
	return nil
}

// isRefusal reports whether an error is the answer to what was asked. The others, such as that
// there are too many requests, or none can be answered, are about the API server.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

func (k *Keeper) count(result string) { k.Metrics.VPAs.WithLabelValues(result).Inc() }

// What is done with made VPAs, as the label of the metric.
const (
	resultMade    = "made"
	resultChanged = "changed"
	resultRemoved = "removed"
)

func (k *Keeper) wanted(w *workload, policy *loadlinev1alpha1.SizingPolicy) *vpav1.VerticalPodAutoscaler {
	v := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Key.Namespace, Name: fleet.MadeName(w.Key.Kind, w.Key.Group, w.Key.Name), Labels: map[string]string{},
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

// resourcePolicy returns that of a policy, with the containers off that it excludes; nil: it says nothing.
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
		if p := &r.ContainerPolicies[i]; p.ControlledResources == nil { // Headlamp requires the default to be written
			p.ControlledResources = &[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
		}
	}
	return r
}

// make returns the turn that makes the VPA of a workload, if its name is free.
func (k *Keeper) make(w *workload, policy *loadlinev1alpha1.SizingPolicy) *turn {
	v := k.wanted(w, policy)
	if held, err := k.VPAs.VerticalPodAutoscalers(v.Namespace).Get(v.Name); err == nil {
		w.refused = fmt.Sprintf("VPA %s/%s cannot be made for %s: there is another of that name; rename or delete it", held.Namespace, held.Name, w.Key)
		return nil
	}
	return &turn{v, w, true, resultMade, func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error {
		_, err := vpas.Create(ctx, v, metav1.CreateOptions{})
		return err
	}}
}

// keep returns the turn that makes a made VPA what its policy wants, unless that cannot be used now; nil: it is that.
// Labels and annotations that somebody else wrote stay, also those of a former text of the policy.
func (k *Keeper) keep(w *workload, policy *loadlinev1alpha1.SizingPolicy, unusable bool) *turn {
	v, metadata, spec := w.made, map[string]any{}, map[string]any{}
	if _, marked := v.Annotations[fleet.UnselectedAnnotation]; marked {
		metadata["annotations"] = map[string]any{fleet.UnselectedAnnotation: nil}
	}
	if !unusable && !client.VPARefused(v) { // the cached spec of a refused VPA is not the stored one
		k.differences(v, k.wanted(w, policy), metadata, spec)
	}
	if len(metadata)+len(spec) == 0 {
		w.refused = ""
		return nil
	}
	return k.patch(v, w, metadata, spec)
}

// differences writes a merge patch that makes v like the wanted VPA.
func (k *Keeper) differences(v, want *vpav1.VerticalPodAutoscaler, metadata, spec map[string]any) {
	if missing := missing(v.Labels, want.Labels); missing != nil {
		metadata["labels"] = missing
	}
	if missing := missing(v.Annotations, want.Annotations); missing != nil {
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
	if v.Spec.StartupBoost != nil { // which acts in mode Off, too
		spec["startupBoost"] = nil
	}
	if !apiequality.Semantic.DeepEqual(v.Spec.ResourcePolicy, client.BoundPolicy(want.Spec.ResourcePolicy)) {
		spec["resourcePolicy"] = want.Spec.ResourcePolicy
	}
	if !apiequality.Semantic.DeepEqual(v.Spec.Recommenders, want.Spec.Recommenders) {
		spec["recommenders"] = want.Spec.Recommenders
	}
}

// missing returns what has to be added to words; nil: nothing, or it is not known, because the
// cache has dropped the words.
func missing(words, wanted map[string]string) map[string]any {
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

// patch returns the turn that changes a made VPA, unless that is no longer as it was read.
func (k *Keeper) patch(v *vpav1.VerticalPodAutoscaler, w *workload, metadata, spec map[string]any) *turn {
	metadata["uid"], metadata["resourceVersion"] = v.UID, v.ResourceVersion
	body := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	return &turn{v, w, metadata["ownerReferences"] != nil, resultChanged, func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error {
		text, err := json.Marshal(body)
		if err == nil {
			_, err = vpas.Patch(ctx, v.Name, types.MergePatchType, text, metav1.PatchOptions{})
		}
		return err
	}}
}

// unselected returns the turn that notes since when nobody selects the workload of a made VPA,
// or that removes it after a day. As long as policies cannot be read nobody knows that.
func (k *Keeper) unselected(v *vpav1.VerticalPodAutoscaler, now time.Time) *turn {
	if k.readable.IsZero() || !k.serves(v) {
		return nil
	}
	since, err := time.Parse(time.RFC3339, v.Annotations[fleet.UnselectedAnnotation])
	if err != nil || since.After(now) { // the clock was set back, or somebody wrote it
		return k.patch(v, nil, map[string]any{"annotations": map[string]any{fleet.UnselectedAnnotation: now.UTC().Format(time.RFC3339)}}, map[string]any{})
	}
	if now.Sub(since) < linger || now.Sub(k.readable) < leastReadable {
		return nil
	}
	return &turn{v, nil, false, resultRemoved, func(ctx context.Context, vpas vpaclient.VerticalPodAutoscalerInterface) error {
		return vpas.Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}})
	}}
}

func (k *Keeper) serves(v *vpav1.VerticalPodAutoscaler) bool {
	return (&model.Roster{Name: k.Name, Namespaces: k.Namespaces}).Serves(v)
}
