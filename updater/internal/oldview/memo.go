package oldview

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/serving"
	disruption "loadline.dev/loadline/updater/internal/olddisruption"
)

// memo is what a Reader made of the objects of the last pass. A cache hands out
// the same object until it changes, so the pointer reports whether it did; of a pod the
// version does.
type memo struct {
	pass   int32
	index  target.Claims   // the VPAs that may control pods, also those that do not act
	acting map[string]bool // namespaces with a VPA that changes running pods, or whose pods are held
	vpas   map[cache.ObjectName]*knownVPA
	listed map[cache.ObjectName]int32 // the pass in which a VPA was last there
	ranges map[string]*knownRanges    // by namespace
	pods   map[types.UID]*knownPod
	owners map[target.Key]*knownOwner
	// referred are the owners that pods of this pass have, by the first of their references. Pods in
	// a cache of client.Factory have the same references only if they are of one namespace and these
	// are equal.
	referred map[*metav1.OwnerReference]*knownOwner
	// unreadable are the targets that cannot be read, with a VPA that has it. It is made
	// anew in each pass.
	unreadable map[target.Key]string
	// ruled are the VPAs whose pods a policy holds, or says how they are changed, as this pass read
	// them: an object is found sooner than a name.
	ruled map[*vpav1.VerticalPodAutoscaler]*ruled
	spare *ruled // for the next VPA of which nobody knows yet whether it is one of these

	rollouts []*Rollout                       // of the last Snapshot
	rounds   map[string]*rollout.PolicyRounds // by policy, see Limits

	met     int          // pods in the last pass
	marked  bool         // a pod has a mark of sharing
	shares  bool         // a policy wants pods to share what their nodes have left
	sharing *sharingMemo // nil: none did in the last round
	book    *recipe.Book // says of the recipes of VPAs whether they share
}

// knownVPA is replaced when the VPA, its target or the LimitRanges change.
type knownVPA struct {
	reading  Reading
	ranges   *knownRanges
	selected *target.Selection
	target   any // the object that this was made from; nil: not known
	pass     int32
	place    int // among all VPAs of the pass, by namespace and name
	permission
	limits limits  // with which reading was made
	sharer *sharer // as of the last round; nil: its policy does not want sharing
}

type knownRanges struct {
	objects []*corev1.LimitRange
	ranges  convert.LimitRanges
	pass    int32
}

type knownPod struct {
	version string // of the pod
	of      *knownVPA
	core    disruption.Pod
	likes   *likeness // those of pods that are alike are the same
	extra   *podExtra // nil: it has nothing of it
	noted   bool      // a change is noted on it
	// rests says that it has what it would get, that its node is not at a resize, and that no
	// change is noted on it.
	rests bool
	pass  int32
}

// podExtra is what is known of few pods: there is one knownPod for each pod of the cluster.
type podExtra struct {
	// observed is when the change was sent that is noted on it, milliseconds since 1970; 0: none is.
	observed int64

	mark    *sharing.Mark // that it shares what its node has left; nil: none
	usual   *usualPod     // as it was divided last; nil: it was not
	part    *sharePart    // what it was to get then
	divided int32         // the pass in which it was
}

// observed returns when the change was sent that is noted on a pod, milliseconds since 1970; 0: none is.
func (k *knownPod) observed() int64 {
	if k.extra == nil {
		return 0
	}
	return k.extra.observed
}

// mark returns the mark of a pod that shares; nil: it has none.
func (k *knownPod) mark() *sharing.Mark {
	if k.extra == nil {
		return nil
	}
	return k.extra.mark
}

// dividedIn reports whether a pod was divided in a pass.
func (k *knownPod) dividedIn(pass int32) bool {
	return k.extra != nil && k.extra.usual != nil && k.extra.divided == pass
}

// current reports whether a pod is still read as it was.
func (k *knownPod) current(vpa *knownVPA, version string) bool {
	return k != nil && k.of == vpa && k.version == version && version != ""
}

// likeness is equal for pods of one VPA whose containers are read alike: those of pods
// in a cache of client.Factory are the same object if they are equal. One without
// containers is like nothing.
type likeness struct {
	containers, init *corev1.Container
	statuses         *corev1.ContainerStatus
	observed         string
	// declared is what was noted of the memory that a pod was declared with, also where somebody
	// has taken that off since: it does not change in the life of a pod.
	declared string
}

func likenessOf(pod *corev1.Pod) (l likeness) {
	l = likeness{observed: pod.Annotations[convert.ObservedAnnotation], declared: pod.Annotations[convert.DeclaredAnnotation]}
	if len(pod.Spec.Containers) == 0 || len(pod.Status.ContainerStatuses) == 0 {
		return l
	}
	l.containers, l.statuses = &pod.Spec.Containers[0], &pod.Status.ContainerStatuses[0]
	if len(pod.Spec.InitContainers) > 0 {
		l.init = &pod.Spec.InitContainers[0]
	}
	return l
}

// of reports whether the containers of a pod and their statuses are these.
func (l *likeness) of(pod *corev1.Pod) bool {
	if l.containers == nil || len(pod.Spec.Containers) == 0 || len(pod.Status.ContainerStatuses) == 0 ||
		l.containers != &pod.Spec.Containers[0] || l.statuses != &pod.Status.ContainerStatuses[0] {
		return false
	}
	if len(pod.Spec.InitContainers) == 0 {
		return l.init == nil
	}
	return l.init == &pod.Spec.InitContainers[0]
}

type knownOwner struct {
	target.Key
	top        target.Key // the topmost owner
	unreadable bool       // it is not known
	name       string     // for disruption.Group
	pass       int32

	// The labels and the claimant of the pod that was asked about last: others with the same
	// labels have the same.
	asked    int32 // the pass in which it was
	labels   map[string]string
	claimant claimant
	dropped  bool // it was logged that the labels of its pods are dropped

	replicas int   // see Reader.replicas
	counted  int32 // the pass in which they were looked up
}

func newMemo() *memo {
	book, _ := recipe.NewBook("", recipe.DefaultConfig()) // the recipe without a name can be read
	return &memo{
		book: book, rounds: map[string]*rollout.PolicyRounds{}, acting: map[string]bool{},
		vpas: map[cache.ObjectName]*knownVPA{}, listed: map[cache.ObjectName]int32{}, ranges: map[string]*knownRanges{},
		pods: map[types.UID]*knownPod{}, owners: map[target.Key]*knownOwner{}, referred: map[*metav1.OwnerReference]*knownOwner{},
		unreadable: map[target.Key]string{}, ruled: map[*vpav1.VerticalPodAutoscaler]*ruled{}, spare: &ruled{},
	}
}

// prune forgets what this pass did not meet.
func (m *memo) prune() {
	for name, v := range m.vpas {
		if v.pass != m.pass {
			m.index.Remove(name.Namespace, name.Name)
			delete(m.vpas, name)
		}
	}
	for name, pass := range m.listed {
		if pass != m.pass {
			delete(m.listed, name)
		}
	}
	for namespace, r := range m.ranges {
		if r.pass != m.pass {
			delete(m.ranges, namespace)
		}
	}
	for uid, p := range m.pods {
		if p.pass != m.pass {
			delete(m.pods, uid)
		}
	}
	for key, o := range m.owners {
		if o.pass != m.pass {
			delete(m.owners, key)
		}
	}
}

// index reads the VPAs that may control pods and whose target is known. One whose
// mode changes no running pod is among them: pods that it controls are left alone,
// and not given to the next VPA with the same target. An idle one is left out, unless a
// policy has a say about any: then that of a person goes before a made one.
func (r *Reader) index(ctx context.Context, vpas []*vpav1.VerticalPodAutoscaler, now time.Time) {
	log := klog.FromContext(ctx)
	clear(r.memo.acting)
	clear(r.memo.referred)
	r.memo.shares, r.memo.marked = false, false
	clear(r.memo.unreadable)
	for _, vpa := range vpas {
		if !r.Serves(vpa.Namespace) {
			continue
		}
		p := r.rule(vpa, now)
		if p.held != "" || acts(p.mode) || p.shares {
			r.memo.acting[vpa.Namespace] = true
		}
		r.memo.shares = r.memo.shares || p.shares
	}
	maps.DeleteFunc(r.memo.ruled, func(_ *vpav1.VerticalPodAutoscaler, v *ruled) bool { return v.pass != r.memo.pass })
	if len(r.memo.acting) > 0 {
		slices.SortFunc(vpas, func(a, b *vpav1.VerticalPodAutoscaler) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	for place, vpa := range vpas {
		name := cache.MetaObjectToName(vpa)
		r.memo.listed[name] = r.memo.pass
		if !r.memo.acting[vpa.Namespace] || len(r.memo.ruled) == 0 && target.ClaimOf(vpa).Idle {
			continue
		}
		if err := r.know(ctx, name, vpa, place); err != nil {
			log.V(3).Info("VPA skipped: it or its target cannot be read", "vpa", klog.KObj(vpa), "reason", err)
			if ref := targetOf(vpa); acts(mode(convert.Mode(vpa))) {
				if before, known := r.memo.unreadable[ref]; !known || vpa.Name < before {
					r.memo.unreadable[ref] = vpa.Name
				}
			}
		}
	}
	for name, v := range r.memo.vpas {
		if v.pass != r.memo.pass {
			r.memo.index.Remove(name.Namespace, name.Name)
		}
	}
}

// know reads one VPA, or finds that nothing of it changed but its place in the pass.
func (r *Reader) know(ctx context.Context, name cache.ObjectName, vpa *vpav1.VerticalPodAutoscaler, place int) (err error) {
	defer serving.Recover(&err)
	ruled := r.memo.ruled[vpa]
	before := r.before(name, ruled)
	selected, object, err := r.selected(ctx, vpa, before, ruled)
	if err != nil {
		return err
	}
	ranges, err := r.rangesOf(vpa.Namespace)
	if err != nil {
		return err
	}
	var permitted permission
	if ruled != nil {
		permitted = ruled.permission
	} else {
		permitted.mode = mode(convert.Mode(vpa))
	}
	var limited limits
	if permitted.rollout != nil {
		limited = permitted.rollout.limits
	}
	if before != nil && before.reading.Object == vpa && before.selected == selected && before.ranges == ranges && before.pass == r.memo.pass-1 && before.limits.equal(limited) {
		before.target, before.pass, before.place, before.permission = object, r.memo.pass, place, permitted
	} else {
		before = &knownVPA{NewReading(vpa, ranges.ranges).within(limited), ranges, selected, object, r.memo.pass, place, permitted, limited, nil}
		r.memo.vpas[name] = before
		r.memo.index.Put(claim(vpa, selected.Selector))
	}
	if ruled != nil {
		ruled.known = before
	}
	return nil
}

// before returns a VPA as it was read last; nil: it was not.
func (r *Reader) before(name cache.ObjectName, ruled *ruled) *knownVPA {
	if ruled != nil && ruled.known != nil && ruled.known.pass == r.memo.pass-1 {
		return ruled.known // an object is found sooner than a name
	}
	return r.memo.vpas[name]
}

// selected returns which pods the target of a VPA selects, and the object of which the policies
// were asked in this pass: as long as that is the same, so are the pods.
func (r *Reader) selected(ctx context.Context, vpa *vpav1.VerticalPodAutoscaler, before *knownVPA, _ *ruled) (selected *target.Selection, object any, err error) {
	if before != nil {
		selected = before.selected
	}
	selected, err = r.Targets.Select(ctx, vpa.Namespace, vpa.Spec.TargetRef, selected)
	return selected, nil, err
}

// rangesOf combines the LimitRanges of a namespace, once in a pass.
func (r *Reader) rangesOf(namespace string) (*knownRanges, error) {
	before := r.memo.ranges[namespace]
	if before != nil && before.pass == r.memo.pass {
		return before, nil
	}
	objects, err := r.LimitRanges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(objects, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	if before != nil && slices.Equal(objects, before.objects) {
		before.pass = r.memo.pass
		return before, nil
	}
	known := &knownRanges{objects, convert.Ranges(objects), r.memo.pass}
	r.memo.ranges[namespace] = known
	return known, nil
}

func claim(vpa *vpav1.VerticalPodAutoscaler, selector labels.Selector) target.Claim {
	c := target.ClaimOf(vpa)
	c.Selects = func(l map[string]string) bool { return selector.Matches(labels.Set(l)) }
	return c
}

func acts(m disruption.Mode) bool { return m != disruption.Off && m != disruption.Initial }
