package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/recommender/model"
)

// linger is how long a made VPA stays that nobody selects any more: a selector that is
// edited for a moment must not cost the history of a fleet.
const linger = 24 * time.Hour

// write brings VPAs to what policies want.
func (k *Keeper) write(ctx context.Context, o *overview, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	for i := range o.cases {
		switch w := &o.cases[i]; {
		case w.Policy != nil && !k.mine(w.Policy): // another recommender does it
		case w.made != nil && !w.KeepVPA:
			k.unselected(ctx, w.made, now)
		case w.made != nil:
			k.keep(ctx, w)
		case w.MakeVPA:
			k.make(ctx, w, now)
		}
	}
	for _, v := range o.lost {
		k.unselected(ctx, v, now)
	}
}

// wanted returns the VPA that a policy wants for a workload.
func (k *Keeper) wanted(w *workload) *vpav1.VerticalPodAutoscaler {
	policy, off := k.object(w), vpav1.UpdateModeOff
	v := &vpav1.VerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Key.Namespace, Name: fleet.MadeName(w.Key.Kind, w.Key.Group, w.Key.Name), Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: w.APIVersion, Kind: w.Key.Kind, Name: w.Key.Name, UID: w.UID}},
		},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:      &autoscalingv1.CrossVersionObjectReference{APIVersion: w.APIVersion, Kind: w.Key.Kind, Name: w.Key.Name},
			UpdatePolicy:   &vpav1.PodUpdatePolicy{UpdateMode: &off},
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

// resourcePolicy returns that of a policy, with the containers off that it excludes.
func resourcePolicy(policy *loadlinev1alpha1.SizingPolicy) *vpav1.PodResourcePolicy {
	if policy.Spec.Containers == nil || len(policy.Spec.Containers.Exclude) == 0 {
		return policy.Spec.ResourcePolicy
	}
	r := policy.Spec.ResourcePolicy.DeepCopy()
	if r == nil {
		r = &vpav1.PodResourcePolicy{}
	}
	off := vpav1.ContainerScalingModeOff
	for _, name := range policy.Spec.Containers.Exclude {
		r.ContainerPolicies = slices.DeleteFunc(r.ContainerPolicies, func(c vpav1.ContainerResourcePolicy) bool { return c.ContainerName == name })
		r.ContainerPolicies = append(r.ContainerPolicies, vpav1.ContainerResourcePolicy{ContainerName: name, Mode: &off})
	}
	return r
}

// make makes the VPA of a workload.
func (k *Keeper) make(ctx context.Context, w *workload, now time.Time) {
	v := k.wanted(w)
	if held, err := k.VPAs.VerticalPodAutoscalers(v.Namespace).Get(v.Name); err == nil {
		w.problem = fmt.Sprintf("VPA %s/%s cannot be made for %s: there is another of that name; rename or delete it", held.Namespace, held.Name, w.Key)
		return
	}
	if w.problem = k.refusals.waiting(v.Namespace, now); w.problem != "" || k.limiter.Wait(ctx) != nil {
		return
	}
	_, err := k.Client.AutoscalingV1().VerticalPodAutoscalers(v.Namespace).Create(ctx, v, metav1.CreateOptions{})
	switch {
	case ctx.Err() != nil, apierrors.IsAlreadyExists(err): // the cache will show it
	case err != nil:
		w.problem = k.refusals.refused(v.Namespace, err, now)
		klog.FromContext(ctx).Error(err, "Cannot make the VPA of a workload, trying again later", "vpa", klog.KObj(v), "policy", w.Policy.Name)
		k.count("refused")
	default:
		k.refusals.accepted(v.Namespace)
		k.count("made")
		klog.FromContext(ctx).V(2).Info("Made a VPA", "vpa", klog.KObj(v), "target", w.Key.String(), "policy", w.Policy.Name)
	}
}

// keep makes a made VPA what its policy wants. Labels and annotations that somebody else
// wrote stay, also those of a former text of the policy.
func (k *Keeper) keep(ctx context.Context, w *workload) {
	v, metadata, spec := w.made, map[string]any{}, map[string]any{}
	if _, marked := v.Annotations[fleet.UnselectedAnnotation]; marked {
		metadata["annotations"] = map[string]any{fleet.UnselectedAnnotation: nil}
	}
	if w.Policy.Unusable == "" && !w.Policy.Paused {
		k.differences(v, k.wanted(w), metadata, spec)
	}
	if len(metadata)+len(spec) == 0 {
		return
	}
	k.patch(ctx, v, metadata, spec)
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
	if !apiequality.Semantic.DeepEqual(v.Spec.ResourcePolicy, want.Spec.ResourcePolicy) {
		spec["resourcePolicy"] = want.Spec.ResourcePolicy
	}
	if !apiequality.Semantic.DeepEqual(v.Spec.Recommenders, want.Spec.Recommenders) {
		spec["recommenders"] = want.Spec.Recommenders
	}
}

// missing returns what has to be added to words; nil: nothing.
func missing(words, wanted map[string]string) map[string]any {
	var add map[string]any
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

// patch changes a made VPA unless it is no longer as it was read.
func (k *Keeper) patch(ctx context.Context, v *vpav1.VerticalPodAutoscaler, metadata, spec map[string]any) {
	if k.limiter.Wait(ctx) != nil {
		return
	}
	metadata["uid"], metadata["resourceVersion"] = v.UID, v.ResourceVersion
	body := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	text, err := json.Marshal(body)
	if err == nil {
		_, err = k.Client.AutoscalingV1().VerticalPodAutoscalers(v.Namespace).Patch(ctx, v.Name, types.MergePatchType, text, metav1.PatchOptions{})
	}
	k.wrote(ctx, v, "changed", err)
}

// wrote counts a write of a made VPA. One that is gone, or not as it was, is looked at in the
// next pass.
func (k *Keeper) wrote(ctx context.Context, v *vpav1.VerticalPodAutoscaler, result string, err error) {
	switch {
	case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot write the VPA of a workload, trying again in the next pass", "vpa", klog.KObj(v))
		k.count("error")
	default:
		klog.FromContext(ctx).V(2).Info("Wrote a VPA that was made for a policy", "vpa", klog.KObj(v), "result", result)
		k.count(result)
	}
}

func (k *Keeper) count(result string) { k.Metrics.VPAs.WithLabelValues(result).Inc() }

// unselected notes since when nobody selects the workload of a made VPA, and removes it after
// a day. As long as policies cannot be read nobody knows that.
func (k *Keeper) unselected(ctx context.Context, v *vpav1.VerticalPodAutoscaler, now time.Time) {
	if !k.Policies.Readable() || !k.serves(v) {
		return
	}
	since, err := time.Parse(time.RFC3339, v.Annotations[fleet.UnselectedAnnotation])
	if err != nil || since.After(now) { // the clock was set back, or somebody wrote it
		k.patch(ctx, v, map[string]any{"annotations": map[string]any{fleet.UnselectedAnnotation: now.UTC().Format(time.RFC3339)}}, nil)
		return
	}
	if now.Sub(since) < linger || k.limiter.Wait(ctx) != nil {
		return
	}
	err = k.Client.AutoscalingV1().VerticalPodAutoscalers(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID}})
	k.wrote(ctx, v, "removed", err)
}

// serves reports whether a VPA is this recommender's.
func (k *Keeper) serves(v *vpav1.VerticalPodAutoscaler) bool {
	return (&model.Roster{Name: k.Name, Works: k.Works}).Serves(v)
}
