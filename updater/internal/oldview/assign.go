package oldview

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// owned is a pod with its VPA and its direct owner.
type owned struct {
	namespace, name string
	uid             types.UID
	pod             *corev1.Pod // nil: neither it nor its VPA changed
	labels          map[string]string
	vpa             *knownVPA
	owner           *knownOwner
}

// assign finds the VPA of each pod and returns the pods that have one, by VPA
// and name, and those of them that shared under a policy that is gone apart. It notes in the
// snapshot why others are left alone.
func (r *Reader) assign(ctx context.Context, s *Snapshot) (controlled, left []owned, err error) {
	controlled = make([]owned, 0, len(r.memo.pods)+8)
	each := klog.FromContext(ctx).V(6)
	r.memo.met = 0
	err = client.EachPod(r.Pods, func(pod *corev1.Pod) {
		r.memo.met++
		if pod.DeletionTimestamp != nil {
			return
		}
		o, vpa, why := r.find(ctx, pod)
		if why == reason.PolicyUnknown {
			if o, shared := r.leftBy(ctx, pod); shared {
				left = append(left, o)
			}
		}
		switch {
		case why == reason.NoVPA: // nearly all pods of many clusters
			s.NoVPA++
			if each.Enabled() {
				each.Info("Pod left alone", "pod", klog.KObj(pod), "reason", why)
			}
		case why != "":
			s.skip(pod.Namespace, vpa, pod.Name, pod.UID, why)
		case o.vpa != nil:
			controlled = append(controlled, o)
		}
	})
	slices.SortFunc(s.Skipped, func(a, b disruption.Skip) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.VPA, b.VPA), cmp.Compare(a.Pod, b.Pod))
	})
	for _, all := range [...][]owned{controlled, left} {
		slices.SortFunc(all, func(a, b owned) int {
			if a.vpa == b.vpa {
				return cmp.Compare(a.name, b.name)
			}
			return cmp.Compare(a.vpa.place, b.vpa.place)
		})
	}
	return controlled, left, err
}

// leftBy returns a pod that is held because its policy is gone, if it shared under that.
func (r *Reader) leftBy(ctx context.Context, pod *corev1.Pod) (o owned, shared bool) {
	if _, marked := convert.Shared(pod); !marked {
		return o, false
	}
	owner, by := r.claimed(ctx, pod)
	if by.vpa == nil || !r.policyGone(by.vpa) {
		return o, false
	}
	return r.owned(pod, by.vpa, owner)
}

// find finds the VPA of a pod, or why none can be found that changes running pods, with
// the name of the VPA as far as that is known. It finds nothing of a pod that goes away
// at this moment.
func (r *Reader) find(ctx context.Context, pod *corev1.Pod) (o owned, vpaName string, why reason.Reason) {
	owner, by := r.claimed(ctx, pod)
	switch {
	case by.vpa == nil:
		return o, by.name, by.reason
	case by.vpa.held != "":
		return o, by.vpa.reading.Object.Name, by.vpa.held
	case !acts(by.vpa.mode):
		return o, "", reason.NoVPA
	}
	o, _ = r.owned(pod, by.vpa, owner)
	return o, "", ""
}

// owned returns a pod with its VPA and its direct owner; false if it goes away at this moment.
func (r *Reader) owned(pod *corev1.Pod, vpa *knownVPA, owner *knownOwner) (o owned, there bool) {
	o = owned{namespace: pod.Namespace, name: pod.Name, uid: pod.UID, labels: pod.Labels, vpa: vpa, owner: owner}
	if !r.memo.pods[pod.UID].current(vpa, pod.ResourceVersion) {
		if o.pod, _ = r.Pods.Pods(pod.Namespace).Get(pod.Name); o.pod == nil || o.pod.UID != pod.UID {
			return owned{}, false
		}
	}
	return o, true
}

// claimant is the VPA that controls a pod, whether it changes running pods or not.
type claimant struct {
	vpa    *knownVPA     // nil: none can be found
	reason reason.Reason // why
	name   string        // of the VPA that is the reason, as far as there is one
}

// claimed returns the direct owner of a pod, nil if none can control it, and its claimant. Pods with
// one owner and the same labels have the same, which is looked up once in a pass.
func (r *Reader) claimed(ctx context.Context, pod *corev1.Pod) (owner *knownOwner, by claimant) {
	if owner = r.ownerOf(ctx, pod); owner == nil {
		return nil, claimant{reason: reason.NoVPA}
	}
	if owner.asked != r.memo.pass || !client.SameMap(owner.labels, pod.Labels) {
		owner.asked, owner.labels, owner.claimant = r.memo.pass, pod.Labels, r.claimant(owner, pod.Labels)
		if client.Dropped(pod.Labels) && !owner.dropped {
			owner.dropped = true
			klog.FromContext(ctx).Info("Skipping pods of a workload: no VPA selects pods with too many labels or containers, see kubectl loadline explain",
				"namespace", pod.Namespace, "workload", owner.top, "pod", pod.Name)
		}
	}
	return owner, owner.claimant
}

// claimant finds that of the pods of an owner with some labels.
func (r *Reader) claimant(owner *knownOwner, labels map[string]string) claimant {
	if owner.unreadable {
		return claimant{reason: reason.OwnerUnreadable}
	}
	if by, found := r.memo.index.Controlling(owner.top, labels); found {
		return claimant{vpa: r.memo.vpas[cache.NewObjectName(by.Namespace, by.Name)]}
	}
	if name, known := r.memo.unreadable[owner.top]; known {
		return claimant{reason: reason.TargetUnreadable, name: name}
	}
	return claimant{reason: reason.NoVPA}
}

// ownerOf returns the direct owner of a pod; nil: it has none, or nothing acts in its namespace.
func (r *Reader) ownerOf(ctx context.Context, pod *corev1.Pod) *knownOwner {
	if len(pod.OwnerReferences) == 0 {
		return nil
	}
	reference := &pod.OwnerReferences[0]
	if owner := r.memo.referred[reference]; owner != nil {
		return owner
	}
	key, ok := target.Controller(pod.Namespace, pod.OwnerReferences)
	if !ok || !r.memo.acting[pod.Namespace] {
		return nil
	}
	owner := r.owner(ctx, key)
	r.memo.referred[reference] = owner
	return owner
}

// owner returns the direct owner of pods, which is looked up once in a pass.
func (r *Reader) owner(ctx context.Context, key target.Key) *knownOwner {
	owner := r.memo.owners[key]
	if owner == nil {
		owner = &knownOwner{Key: key, name: key.Namespace + "/" + key.String()}
		r.memo.owners[key] = owner
	}
	if owner.pass != r.memo.pass {
		top, _, err := r.Targets.Topmost(ctx, key)
		if err != nil {
			klog.FromContext(ctx).V(3).Info("Pods left alone: their controller cannot be read", "namespace", key.Namespace, "owner", key, "reason", err)
		}
		owner.top, owner.pass, owner.unreadable = top, r.memo.pass, err != nil
	}
	return owner
}

// fill puts the VPAs with their pods into the view.
func (r *Reader) fill(ctx context.Context, s *Snapshot, controlled []owned) {
	s.View.VPAs = make([]disruption.VPA, 0, len(r.memo.vpas))
	f := filling{Reader: r, snapshot: s, pods: make([]disruption.Pod, 0, len(controlled)), groups: make([]disruption.Group, 0, len(r.memo.owners)+8)}
	for len(controlled) > 0 {
		n := slices.IndexFunc(controlled, func(o owned) bool { return o.vpa != controlled[0].vpa })
		if n < 0 {
			n = len(controlled)
		}
		f.add(ctx, controlled[:n])
		controlled = controlled[n:]
	}
}

// filling is a view in the making. The pods and groups of all VPAs lie in one
// slice each.
type filling struct {
	*Reader
	snapshot *Snapshot
	pods     []disruption.Pod
	groups   []disruption.Group
	owners   []*knownOwner // of the groups of the current VPA
	last     *knownPod     // that was added
	rest     bool          // all pods of the current VPA do

	revisions map[int]*revisions // of the pods of custom owners, by the index of the group of the current VPA
}

// add adds a VPA with its pods.
func (f *filling) add(ctx context.Context, pods []owned) {
	log := klog.FromContext(ctx)
	reading := pods[0].vpa.reading
	name := cache.MetaObjectToName(reading.Object)
	firstPod, firstGroup := len(f.pods), len(f.groups)
	f.owners, f.rest = f.owners[:0], true
	why := reason.InternalError
	if convert.Unreadable(reading.Object) != "" {
		why = reason.VPAUnreadable
	}
	v, err := f.vpa(pods[0].vpa)
	if err != nil {
		log.Error(err, "VPA skipped with its pods: it cannot be understood", "vpa", name, "pods", len(pods))
	}
	for _, o := range pods {
		why, err := why, err
		if err == nil {
			if err = f.one(ctx, o); err != nil {
				why = reason.InternalError
				log.Error(err, "Pod skipped: it cannot be understood", "pod", klog.KRef(o.namespace, o.name), "vpa", name)
			}
		}
		if err != nil {
			f.snapshot.skip(o.namespace, name.Name, o.name, o.uid, why)
		}
	}
	f.protectOlder()
	if err != nil {
		return
	}
	v.Pods = f.pods[firstPod:len(f.pods):len(f.pods)]
	v.Groups = f.groups[firstGroup:len(f.groups):len(f.groups)]
	for i, owner := range f.owners {
		// The scale of a custom workload is remembered for minutes. If there are
		// more pods meanwhile, the old number would let too many of them go.
		if g := &v.Groups[i]; owner.Group != "" && g.Replicas > 0 {
			live := 0
			for j := range v.Pods {
				if v.Pods[j].Group == i {
					live++
				}
			}
			g.Replicas = max(g.Replicas, live)
		}
	}
	if of := pods[0].vpa.rollout; of != nil {
		of.Resting = of.quiet && f.rest
	}
	f.snapshot.View.VPAs = append(f.snapshot.View.VPAs, v)
	if len(f.memo.ruled) > 0 {
		f.snapshot.rollouts = append(f.snapshot.rollouts, pods[0].vpa.rollout)
	}
}

func (f *filling) vpa(known *knownVPA) (v disruption.VPA, err error) {
	defer serving.Recover(&err)
	reading := known.reading
	if problem := convert.Unreadable(reading.Object); problem != "" {
		return v, errors.New(problem)
	}
	v = reading.VPA(f.PerVPAConfig)
	v.Mode, v.Ungated = known.mode, known.ungated
	v.Outdated = f.Generations.Outdated(reading.Object) // news may come late: the object need not change
	return v, nil
}

// one adds a pod, as it was read before if neither it nor its VPA changed.
func (f *filling) one(ctx context.Context, o owned) (err error) {
	defer serving.Recover(&err)
	known := f.memo.pods[o.uid]
	if known == nil {
		known = &knownPod{}
		f.memo.pods[o.uid] = known
	}
	if o.pod != nil {
		known.of = nil // if this panics, nothing half done is left
		declared := o.pod.Annotations[convert.DeclaredAnnotation]
		if known.likes != nil {
			declared = convert.TighterDeclared(known.likes.declared, declared)
		}
		o.pod = declaredAs(o.pod, declared)
		known.core = o.vpa.reading.Pod(o.pod, 0)
		known.noted, known.extra = convert.HasNotedChange(o.pod), nil
		known.rests = !known.core.Changed() && known.core.Resize == disruption.NotResizing && !known.noted
		if mark, observed := markOf(o.pod), observedSince(o.pod); mark != nil || observed != 0 {
			known.extra = &podExtra{mark: mark, observed: observed}
		}
		known.of, known.version = o.vpa, o.pod.ResourceVersion
		likes := likenessOf(o.pod)
		if before := f.last; before != nil && before.of == o.vpa && likes.containers != nil && *before.likes == likes {
			known.likes = before.likes // one copy is enough
			known.core.Containers, known.core.Fixed = before.core.Containers, before.core.Fixed
		} else {
			known.likes = &likes
		}
	}
	f.last, f.memo.marked = known, f.memo.marked || known.mark() != nil
	f.rest = f.rest && known.rests
	known.pass = f.memo.pass
	group := slices.Index(f.owners, o.owner)
	if group < 0 {
		group = len(f.owners)
		g := disruption.Group{Key: o.owner.name, Replicas: f.replicas(ctx, o.owner), Rolling: f.Targets.Rolling(o.owner.top)}
		f.owners, f.groups = append(f.owners, o.owner), append(f.groups, g)
	}
	pod := known.core
	pod.Group, pod.Bound = group, o.owner.Kind == "DaemonSet" && o.owner.Group == ""
	pod.Protected = f.protected(o, &pod)
	f.pods = append(f.pods, pod)
	f.addRevision(o, group, len(f.pods)-1)
	return nil
}

// declaredAs returns a pod that says of itself with which memory it was declared. It leaves the
// pod as it is: that is of a cache.
func declaredAs(pod *corev1.Pod, declared string) *corev1.Pod {
	if pod.Annotations[convert.DeclaredAnnotation] == declared {
		return pod
	}
	as := *pod
	as.Annotations = maps.Clone(pod.Annotations)
	if as.Annotations == nil {
		as.Annotations = map[string]string{}
	}
	as.Annotations[convert.DeclaredAnnotation] = declared
	return &as
}

// observedSince returns when the change was sent that is noted on a pod, in milliseconds since
// 1970; 0: none is, or it cannot be read.
func observedSince(pod *corev1.Pod) int64 {
	if !convert.HasNotedChange(pod) {
		return 0
	}
	noted, err := convert.NotedChange(pod)
	if err != nil || noted.At.IsZero() {
		return 0
	}
	return noted.At.UnixMilli()
}

// replicas returns how many pods an owner wants, which is looked up once in a pass.
func (r *Reader) replicas(ctx context.Context, owner *knownOwner) int {
	if owner.counted != r.memo.pass {
		owner.counted, owner.replicas = r.memo.pass, r.group(ctx, owner.Key).Replicas
	}
	return owner.replicas
}

// group reads how many pods an owner wants. Owners that do not state it, such as
// a Job or a custom workload without scale, count by their live pods.
func (r *Reader) group(ctx context.Context, owner target.Key) disruption.Group {
	g := disruption.Group{Replicas: disruption.Unknown}
	replicas, known := r.Targets.Replicas(ctx, owner)
	switch {
	case known:
		g.Replicas = int(replicas)
	case hasReplicas(owner.Kind):
		g.Replicas = 0
	}
	return g
}

// hasReplicas reports whether owners of a kind state how many pods they want; one that
// does not is gone.
func hasReplicas(kind string) bool {
	switch kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController":
		return true
	}
	return false
}
