package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/mutate"
	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/admission-controller/validate"
	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/nodefit"
	"loadline.dev/loadline/pkg/kube/sizing"
)

type finder interface {
	// Serves reports whether a namespace has a VPA that may change its pods. Generated VPAs count
	// only if made is true: a policy lets them act.
	Serves(namespace string, made bool) bool
	Find(ctx context.Context, namespace string, pod *corev1.Pod) (*vpav1.VerticalPodAutoscaler, error)
}

type nodes interface {
	// Nodes is nil if the nodes available to new pods are unknown or larger ones may be added.
	Nodes() *nodefit.Nodes
	Exceeded()
}

type podHandler struct {
	serves      func(namespace string) bool
	finder      finder
	limitRanges corelisters.LimitRangeLister
	quotas      func(namespace string) []*corev1.ResourceQuota // nil: unknown
	nodes       nodes                                          // nil: unknown
	mutation    mutate.Config
	// outdated reports a recommendation that may be for a former target of the VPA. Nil: never.
	outdated func(*vpav1.VerticalPodAutoscaler) bool
	policies *sizing.Policies                 // nil: none
	records  *sizing.Records                  // of workloads under a policy, nil: unreadable
	hpas     *sizing.HorizontalPodAutoscalers // nil: unreadable
	recipes  *recipe.Cache                    // decides whether the pods of a recipe share
	// sharingMinAge is the minimum age of a sharing workload, 0 for sharing.MinAge.
	sharingMinAge time.Duration
}

func (h podHandler) handler() server.Handler {
	return server.Handler{Resource: metav1.GroupResource{Resource: "pods"}, Label: labelPod, Answer: h.answer}
}

func (h podHandler) answer(ctx context.Context, request *admissionv1.AdmissionRequest) server.Answer {
	if request.Resource.Version != "v1" || request.SubResource != "" {
		return server.Answer{Cause: server.CauseResource, Err: fmt.Errorf("unsupported pod request: must be version v1 without subresource, not version %q, subresource %q", request.Resource.Version, request.SubResource)}
	}
	if !h.serves(request.Namespace) || request.Operation != "" && request.Operation != admissionv1.Create {
		return server.Answer{} // an in-place resize is not admitted here
	}
	answer := h.mutatePod(ctx, request)
	if notes := server.FindAnnotations(request.Object.Raw, convert.RunningPodAnnotations); len(notes) > 0 {
		return removeForeignAnnotations(ctx, request, answer, notes)
	}
	return answer
}

// removeForeignAnnotations removes the updater's annotations from a new pod, which was never
// resized: the updater would restore the resources in them. The removals come first, because the
// answer may add the same annotations with correct values.
func removeForeignAnnotations(ctx context.Context, request *admissionv1.AdmissionRequest, answer server.Answer, notes []string) server.Answer {
	patch := make([]client.PatchOperation, 0, len(notes)+len(answer.Patch))
	for _, name := range notes {
		patch = append(patch, client.PatchRemove(client.PatchPath("metadata", "annotations", name)))
		answer.Warnings = append(answer.Warnings, "annotation "+name+" removed: only the updater may record the resources from before a resize")
	}
	answer.Patch = append(patch, answer.Patch...)
	if answer.Err == nil {
		answer.Cause = server.CauseNote
	}
	after := answer.After
	answer.After = func() {
		klog.FromContext(ctx).V(2).Info("Removed annotations reserved for the updater from new pod", "pod", klog.KRef(request.Namespace, request.Name), "uid", request.UID, "annotations", notes)
		if after != nil {
			after()
		}
	}
	return answer
}

func (h podHandler) mutatePod(ctx context.Context, request *admissionv1.AdmissionRequest) server.Answer {
	if !h.finder.Serves(request.Namespace, h.policies.MayChangePods(request.Namespace)) {
		return server.Answer{}
	}
	pod, err := server.DecodePod(request.Object.Raw)
	switch {
	case errors.Is(err, server.ErrTooComplex):
		return server.Answer{Cause: server.CauseTooComplex, Err: err}
	case err != nil:
		return server.Answer{Cause: server.CauseObject, Err: err}
	}
	pod.Namespace = request.Namespace
	if pod.Name == "" {
		pod.Name = pod.GenerateName + "%" // the API server chooses the suffix later
	}
	request.Name = pod.Name // for the log of later problems
	vpa, err := h.finder.Find(ctx, request.Namespace, pod)
	if err != nil {
		return server.Answer{Cause: server.CauseOwner, Err: err}
	}
	if vpa == nil {
		return server.Answer{}
	}
	if problem := convert.UnreadableReason(vpa); problem != "" {
		return server.Answer{Warnings: []string{"VerticalPodAutoscaler " + vpa.Name + ": skipped, because it cannot be read: " + problem}}
	}
	result := h.applyPolicy(vpa, pod)
	if result.skipReason != "" {
		return skipPod(ctx, request, klog.KObj(pod), klog.KObj(vpa), result.skipReason)
	}
	if h.outdated != nil && h.outdated(vpa) {
		result.vpa = convert.WithoutRecommendation(result.vpa)
		result.warnings = []string{"VerticalPodAutoscaler " + vpa.Name + ": skipped, because its recommendation may be for a previous target; the recommender has not processed the current target yet"}
	}
	objects, err := h.limitRanges.LimitRanges(request.Namespace).List(labels.Everything())
	if err != nil {
		return server.Answer{Cause: server.CauseLimitRange, Err: fmt.Errorf("list the LimitRanges of namespace %s: %w", request.Namespace, err)}
	}
	constraints := mutate.Constraints{Ranges: convert.Ranges(objects), Sharing: result.sharing, Outer: result.outer}
	if h.quotas != nil {
		constraints.Room = mutate.RoomFor(pod, h.quotas(request.Namespace))
	}
	if h.nodes != nil {
		constraints.Nodes, constraints.Written = h.nodes.Nodes(), request.Object.Raw
	}
	mutation, err := h.mutation.Patch(pod, result.vpa, constraints)
	if err != nil {
		return server.Answer{Cause: server.CauseBoost, Err: fmt.Errorf("VerticalPodAutoscaler %s: %w", klog.KObj(vpa), err)}
	}
	if mutation.Exceeds {
		h.nodes.Exceeded()
	}
	mutation.Warnings = append(result.warnings, mutation.Warnings...)
	return server.Answer{Patch: mutation.Patch, Warnings: mutation.Warnings, After: func() {
		logMutation(ctx, request, mutation, klog.KObj(pod), klog.KObj(vpa))
	}}
}

// skipPod returns the answer for a pod that stays unchanged. Inlined in its caller, the logging
// closure would cost every review an allocation.
func skipPod(ctx context.Context, request *admissionv1.AdmissionRequest, pod, vpa klog.ObjectRef, why reason.Reason) server.Answer {
	return server.Answer{After: func() {
		klog.FromContext(ctx).V(4).Info("Skipping new pod", "pod", pod, "vpa", vpa, "uid", request.UID, "reason", why)
	}}
}

// logMutation logs a mutation with its warnings, because Kubernetes controllers drop them.
func logMutation(ctx context.Context, request *admissionv1.AdmissionRequest, m mutate.Mutation, pod, vpa klog.ObjectRef) {
	log := klog.FromContext(ctx)
	if len(m.Warnings) > 0 {
		log = log.WithValues("warnings", m.Warnings)
	}
	switch {
	case request.DryRun != nil && *request.DryRun:
		log.V(4).Info("Dry run of a new pod", "pod", pod, "vpa", vpa, "uid", request.UID, "resized", m.Resized)
	case m.Resized:
		log.V(2).Info("New pod gets the resources of its VPA", "pod", pod, "vpa", vpa, "uid", request.UID)
	default:
		log.V(4).Info("New pod keeps its resources: its VPA recommends none", "pod", pod, "vpa", vpa, "uid", request.UID)
	}
}

// advisor returns warnings about an accepted VPA. The old VPA is nil on create.
type advisor func(ctx context.Context, vpa, old *vpav1.VerticalPodAutoscaler) []string

// vpaHandler validates VPA objects. It passes VPAs that are about to be created to admitted.
func vpaHandler(config validate.Config, advise advisor, admitted func(*vpav1.VerticalPodAutoscaler)) server.Handler {
	return server.Handler{
		Resource: metav1.GroupResource{Group: vpav1.SchemeGroupVersion.Group, Resource: "verticalpodautoscalers"},
		Label:    "VPA",
		Guards:   true,
		Answer: func(ctx context.Context, request *admissionv1.AdmissionRequest) server.Answer {
			var old []byte
			if request.Operation == admissionv1.Update {
				old = request.OldObject.Raw
			}
			verdict := config.Check(request.Object.Raw, old)
			if refusal := verdict.Status(request.Name); refusal != nil {
				klog.FromContext(ctx).V(4).Info("VPA refused", "vpa", klog.KRef(request.Namespace, request.Name), "uid", request.UID, "reason", refusal.Message)
				return server.Answer{Refusal: refusal, Warnings: verdict.Warnings}
			}
			if verdict.Object == nil {
				return server.Answer{Warnings: verdict.Warnings}
			}
			verdict.Object.Namespace = request.Namespace
			if request.Operation == admissionv1.Create && (request.DryRun == nil || !*request.DryRun) {
				admitted(verdict.Object)
			}
			return server.Answer{Patch: verdict.Patch, Warnings: append(verdict.Warnings, advise(ctx, verdict.Object, verdict.Old)...)}
		},
	}
}

func policyHandler(config validate.Config) server.Handler {
	return server.Handler{
		Resource: metav1.GroupResource{Group: loadlinev1alpha1.GroupName, Resource: "sizingpolicies"},
		Label:    "SizingPolicy",
		Answer: func(ctx context.Context, request *admissionv1.AdmissionRequest) server.Answer {
			var old []byte
			if request.Operation == admissionv1.Update {
				old = request.OldObject.Raw
			}
			verdict := config.CheckPolicy(request.Object.Raw, old)
			refusal := verdict.Status(request.Name)
			if refusal != nil {
				klog.FromContext(ctx).V(4).Info("SizingPolicy refused", "policy", request.Name, "uid", request.UID, "reason", refusal.Message)
			}
			return server.Answer{Refusal: refusal, Warnings: verdict.Warnings}
		},
	}
}
