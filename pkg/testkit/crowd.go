package testkit

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
)

// Crowd describes the size of a large simulated cluster. CrowdServer generates its objects on
// demand, so it takes no memory. Each Deployment has one VPA.
//
// The objects resemble a real cluster: pods with two containers and an init container, probes,
// volumes, environment and managed fields, several pods for each Deployment, and old ReplicaSets of
// earlier revisions. Objects are a function of their number.
type Crowd struct {
	Pods        int
	Deployments int
	Revisions   int // ReplicaSets per Deployment; the last one has the pods
	Nodes       int
	// UnderAPolicy adds a SizingPolicy that selects all Deployments. Their VPAs are generated, and
	// each has a SizingRecord with twenty rounds.
	UnderAPolicy bool
}

// perNamespace is the number of Deployments in a namespace.
const perNamespace = 20

var born = metav1.NewTime(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))

type crowdWorkload struct {
	number          int
	name, namespace string
}

func (c Crowd) workload(i int) crowdWorkload {
	words := [...]string{"checkout", "catalogue", "search", "billing", "session", "recommendation", "inventory", "mail"}
	parts := [...]string{"api", "worker", "gateway", "indexer", "frontend"}
	return crowdWorkload{i, fmt.Sprintf("%s-%s-%d", words[i%len(words)], parts[i/3%len(parts)], i), fmt.Sprintf("team-%d", i/perNamespace)}
}

// hash returns the pod-template-hash of a revision.
func (w crowdWorkload) hash(revision int) string {
	return fmt.Sprintf("%x", 0x5f3759df^uint32(w.number*2654435761+revision*40503))
}

func (w crowdWorkload) set(revision int) string { return w.name + "-" + w.hash(revision) }

func uid(kind, a, b int) types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", kind, b&0xffff, a))
}

func (w crowdWorkload) labels() map[string]string {
	return map[string]string{
		"app": w.name, "app.kubernetes.io/name": w.name, "app.kubernetes.io/instance": w.name + "-production",
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "2.14." + fmt.Sprint(w.number%9), "team": w.namespace,
	}
}

func (w crowdWorkload) podLabels(revision int) map[string]string {
	l := w.labels()
	l["pod-template-hash"] = w.hash(revision)
	return l
}

func managed(writers int) (fields []metav1.ManagedFieldsEntry) {
	text := `{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{".":{}` +
		`,"k:{\"name\":\"DATABASE_URL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},` +
		`"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}}}},"f:dnsPolicy":{},"f:schedulerName":{}}}`
	for i := range writers {
		fields = append(fields, metav1.ManagedFieldsEntry{
			Manager: [...]string{"kube-controller-manager", "kubelet", "kubectl-client-side-apply"}[i%3], Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: "v1", Time: &born, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(text),
		})
	}
	return fields
}

func amounts(cpu, memory int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(cpu, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
	}
}

// sizes returns the VPA target for the first container. Sidecars are equal everywhere.
func (w crowdWorkload) sizes(container int) corev1.ResourceRequirements {
	if container > 0 {
		return corev1.ResourceRequirements{Requests: amounts(100, 128<<20), Limits: amounts(2000, 1<<30)}
	}
	cpu, memory := int64(25+w.number*37%3971), int64(250<<20+w.number*7919%100_003<<12)
	return corev1.ResourceRequirements{Requests: amounts(cpu, memory), Limits: amounts(2*cpu, 2*memory)}
}

var containers = [...]string{"app", "istio-proxy"}

func (w crowdWorkload) container(name string, sizes corev1.ResourceRequirements) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/" + w.namespace + "/" + w.name + ":2.14.3", ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/usr/local/bin/" + name}, Args: []string{"--config=/etc/app/config.yaml", "--port=8080"},
		Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}},
		Resources: sizes, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		ResizePolicy: []corev1.ContainerResizePolicy{
			{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}, {ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.NotRequired}},
	}
	for i := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d_OF_THE_SERVICE", i), Value: fmt.Sprintf("value-%d-of-%s", i, w.name)})
	}
	for i := range 4 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", i), MountPath: fmt.Sprintf("/var/run/mounted/%d", i), ReadOnly: true})
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	c.LivenessProbe, c.ReadinessProbe = probe, probe
	return c
}

func (w crowdWorkload) spec() corev1.PodSpec {
	grace := int64(30)
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: corev1.DNSClusterFirst,
		ServiceAccountName: w.name, SchedulerName: corev1.DefaultSchedulerName, SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(bool)},
		InitContainers: []corev1.Container{w.container("migrate", corev1.ResourceRequirements{Requests: amounts(10, 64<<20), Limits: amounts(100, 128<<20)})},
	}
	for i, name := range containers {
		spec.Containers = append(spec.Containers, w.container(name, w.sizes(i)))
	}
	for i := range 5 {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-config"}}}})
	}
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		seconds := int64(300)
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	return spec
}

// Pod returns a pod. The pods of a Deployment are consecutive, as in a list of the API server.
func (c Crowd) Pod(i int) *corev1.Pod {
	w := c.workload(i * c.Deployments / c.Pods)
	revision, controller := c.Revisions-1, true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%05x", w.set(revision), i), GenerateName: w.set(revision) + "-", Namespace: w.namespace, UID: uid(1, i, 0),
			ResourceVersion: fmt.Sprint(900_000_000 + i), Generation: 1, CreationTimestamp: metav1.NewTime(born.Add(time.Duration(i) * time.Second)),
			Labels: w.podLabels(revision), ManagedFields: managed(3),
			Annotations: map[string]string{
				"checksum/config": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
				"sidecar.istio.io/status": `{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["istio-envoy","istio-data","istio-token"]}`,
				"vpaUpdates":              "Pod resources updated by " + w.name + ": container 0: cpu request, memory request, cpu limit, memory limit",
				"vpaObservedContainers":   "app, istio-proxy",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: w.set(revision), UID: uid(3, w.number, revision), Controller: &controller, BlockOwnerDeletion: &controller}},
		},
		Spec: w.spec(),
	}
	pod.Spec.NodeName = nodeName(i * 7 % c.Nodes)
	w.status(pod, i)
	return pod
}

// status sets a running status. One pod in ten restarted once, one in a hundred was OOM killed.
func (w crowdWorkload) status(pod *corev1.Pod, i int) {
	started := metav1.NewTime(pod.CreationTimestamp.Add(4 * time.Second))
	pod.Status = corev1.PodStatus{
		ObservedGeneration: 1, Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &started,
		HostIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}}, PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: started})
	}
	status := func(n int, name string, sizes corev1.ResourceRequirements) corev1.ContainerStatus {
		ready := true
		return corev1.ContainerStatus{
			Name: name, Ready: true, Started: &ready, Image: "registry.example.com/" + w.namespace + "/" + w.name + ":2.14.3",
			ImageID:     "registry.example.com/" + w.namespace + "/" + w.name + "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			ContainerID: containerID(i, n), AllocatedResources: sizes.Requests, Resources: &sizes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}
	}
	done := status(9, "migrate", pod.Spec.InitContainers[0].Resources)
	done.State = corev1.ContainerState{Terminated: endedState(i, 9, "Completed", started)}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{done}
	for n, name := range containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status(n, name, w.sizes(n)))
	}
	if i%10 == 3 {
		reason := "Error"
		if i%100 == 3 {
			reason = "OOMKilled"
		}
		app := &pod.Status.ContainerStatuses[0]
		app.RestartCount, app.LastTerminationState = 1, corev1.ContainerState{Terminated: endedState(i, 8, reason, started)}
	}
}

func containerID(pod, n int) string { return fmt.Sprintf("containerd://%056x%08x", pod, n) }

func endedState(pod, n int, reason string, at metav1.Time) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: 1, Reason: reason, StartedAt: at, FinishedAt: at, ContainerID: containerID(pod, n)}
}

func (w crowdWorkload) template(revision int) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: w.podLabels(revision)}, Spec: w.spec()}
}

func (w crowdWorkload) annotations() map[string]string {
	return map[string]string{
		"deployment.kubernetes.io/revision": "11", "deployment.kubernetes.io/desired-replicas": "5", "deployment.kubernetes.io/max-replicas": "7",
		"meta.helm.sh/release-name": w.name, "meta.helm.sh/release-namespace": w.namespace,
	}
}

// Deployment returns a Deployment.
func (c Crowd) Deployment(i int) *appsv1.Deployment {
	w, replicas := c.workload(i), int32(c.Pods/c.Deployments)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace, UID: uid(2, i, 0), ResourceVersion: fmt.Sprint(800_000_000 + i), Generation: 11,
			CreationTimestamp: born, Labels: w.labels(), Annotations: w.annotations(), ManagedFields: managed(2)},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.name, "app.kubernetes.io/name": w.name}}, Template: w.template(0)},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 11, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.", LastTransitionTime: born, LastUpdateTime: born},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", Message: "ReplicaSet has successfully progressed.", LastTransitionTime: born, LastUpdateTime: born}}},
	}
}

// ReplicaSet returns a revision of a Deployment. Only the last of consecutive ones has pods.
func (c Crowd) ReplicaSet(i int) *appsv1.ReplicaSet {
	w, revision, controller := c.workload(i/c.Revisions), i%c.Revisions, true
	replicas := int32(0)
	if revision == c.Revisions-1 {
		replicas = int32(c.Pods / c.Deployments)
	}
	selector := w.podLabels(revision)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.set(revision), Namespace: w.namespace, UID: uid(3, w.number, revision), ResourceVersion: fmt.Sprint(700_000_000 + i), Generation: 3,
			CreationTimestamp: born, Labels: w.podLabels(revision), Annotations: w.annotations(), ManagedFields: managed(2),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: w.name, UID: uid(2, w.number, 0), Controller: &controller, BlockOwnerDeletion: &controller}}},
		Spec:   appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: w.template(revision)},
		Status: appsv1.ReplicaSetStatus{Replicas: replicas, ReadyReplicas: replicas, ObservedGeneration: 3},
	}
}

// VPA returns the VPA of a Deployment, in mode InPlaceOrRecreate. It recommends the resources of
// the pods, or for one VPA in four the minimum.
func (c Crowd) VPA(i int) *vpav1.VerticalPodAutoscaler {
	w, mode := c.workload(i), vpav1.UpdateModeInPlaceOrRecreate
	vpa := &vpav1.VerticalPodAutoscaler{
		TypeMeta: metav1.TypeMeta{APIVersion: vpav1.SchemeGroupVersion.String(), Kind: "VerticalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace, UID: uid(4, i, 0), ResourceVersion: fmt.Sprint(600_000_000 + i), Generation: 2, CreationTimestamp: born,
			Labels: w.labels(), Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler","metadata":{"name":"` + w.name + `"}}`}, ManagedFields: managed(2)},
		Spec: vpav1.VerticalPodAutoscalerSpec{
			TargetRef:      &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: w.name},
			UpdatePolicy:   &vpav1.PodUpdatePolicy{UpdateMode: &mode},
			ResourcePolicy: &vpav1.PodResourcePolicy{ContainerPolicies: []vpav1.ContainerResourcePolicy{{ContainerName: "*", MaxAllowed: amounts(8000, 32<<30)}}},
		},
		Status: vpav1.VerticalPodAutoscalerStatus{
			Recommendation: &vpav1.RecommendedPodResources{},
			Conditions:     []vpav1.VerticalPodAutoscalerCondition{{Type: vpav1.RecommendationProvided, Status: corev1.ConditionTrue, LastTransitionTime: born}},
		},
	}
	for n, name := range containers {
		target := w.sizes(n).Requests
		cpu, memory := target.Cpu().MilliValue(), target.Memory().Value()
		lower, upper := amounts(cpu*9/10, memory*9/10), amounts(cpu*12/10, memory*12/10)
		if i%4 == 0 {
			target, lower = amounts(25, 250<<20), amounts(25, 250<<20)
		}
		vpa.Status.Recommendation.ContainerRecommendations = append(vpa.Status.Recommendation.ContainerRecommendations, vpav1.RecommendedContainerResources{
			ContainerName: name, Target: target, LowerBound: lower, UpperBound: upper, UncappedTarget: target,
		})
	}
	if c.UnderAPolicy {
		c.underPolicy(vpa, w)
	}
	return vpa
}

// Namespaces returns the number of namespaces.
func (c Crowd) Namespaces() int { return (c.Deployments + perNamespace - 1) / perNamespace }

// Namespace returns a namespace.
func (c Crowd) Namespace(i int) *corev1.Namespace {
	name := c.workload(i * perNamespace).namespace
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(6, i, 0), ResourceVersion: fmt.Sprint(400_000_000 + i), CreationTimestamp: born,
		Labels: map[string]string{corev1.LabelMetadataName: name, "team": name}, ManagedFields: managed(1)}}
}

// Policy returns the SizingPolicy.
func (c Crowd) Policy() *loadlinev1alpha1.SizingPolicy {
	return &loadlinev1alpha1.SizingPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: loadlinev1alpha1.SchemeGroupVersion.String(), Kind: "SizingPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: policyName, UID: uid(7, 0, 0), ResourceVersion: "300000000", Generation: 1, CreationTimestamp: born, ManagedFields: managed(2)},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"*"}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto), StartRate: new(int32(0))},
		},
	}
}

const policyName = "everything"

func (c Crowd) underPolicy(vpa *vpav1.VerticalPodAutoscaler, w crowdWorkload) {
	vpa.Name, vpa.Annotations = fleet.GeneratedVPAName("Deployment", "apps", w.name), nil
	vpa.Labels = map[string]string{fleet.PolicyLabel: policyName}
	vpa.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: w.name, UID: uid(2, w.number, 0), Controller: new(false), BlockOwnerDeletion: new(false)}}
	vpa.Spec.UpdatePolicy.UpdateMode = new(vpav1.UpdateModeOff)
	vpa.Spec.ResourcePolicy = nil
}

// Record returns the SizingRecord of a Deployment.
func (c Crowd) Record(i int) *loadlinev1alpha1.SizingRecord {
	w := c.workload(i)
	r := &loadlinev1alpha1.SizingRecord{
		TypeMeta: metav1.TypeMeta{APIVersion: loadlinev1alpha1.SchemeGroupVersion.String(), Kind: "SizingRecord"},
		ObjectMeta: metav1.ObjectMeta{Name: fleet.GeneratedVPAName("Deployment", "apps", w.name), Namespace: w.namespace, UID: uid(8, i, 0), ResourceVersion: fmt.Sprint(200_000_000 + i), CreationTimestamp: born, ManagedFields: managed(1),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: w.name, UID: uid(2, i, 0), Controller: new(false), BlockOwnerDeletion: new(false)}}},
		Status: loadlinev1alpha1.SizingRecordStatus{Mode: loadlinev1alpha1.RolloutModeAuto, Kept: w.changed(0)},
	}
	for n := range 20 {
		at := metav1.NewTime(born.AddDate(0, 0, -n))
		r.Status.Rounds = append(r.Status.Rounds, loadlinev1alpha1.Round{Time: at, LastChange: &at, Pods: int32(c.Pods / c.Deployments), From: w.changed(n + 1), To: w.changed(n), Outcome: loadlinev1alpha1.RoundSuccess})
	}
	return r
}

// changed returns the resources of a workload the given number of rounds ago.
func (w crowdWorkload) changed(rounds int) (sizes []loadlinev1alpha1.ContainerSizes) {
	for i, name := range containers {
		now := w.sizes(i)
		requests := amounts(now.Requests.Cpu().MilliValue()+int64(10*rounds), now.Requests.Memory().Value())
		sizes = append(sizes, loadlinev1alpha1.ContainerSizes{Name: name, Requests: loadlinev1alpha1.Sizes(requests), Limits: loadlinev1alpha1.Sizes(now.Limits)})
	}
	return sizes
}

// Node returns a node.
func (c Crowd) Node(i int) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: uid(5, i, 0), ResourceVersion: fmt.Sprint(500_000_000 + i), CreationTimestamp: born, ManagedFields: managed(3),
			Labels: map[string]string{"kubernetes.io/hostname": nodeName(i), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m6i.4xlarge",
				"topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": "eu-central-1" + string(rune('a'+i%3))}},
		Status: corev1.NodeStatus{Capacity: amounts(16_000, 64<<30), Allocatable: amounts(15_890, 60<<30)},
	}
	for n := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:9f86d081884c7d65", n)}, SizeBytes: 1 << 20})
	}
	return node
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d.eu-central-1.compute.internal", i/250, i%250)
}
