// Package plugintest provides fixtures for tests of the plugin: a small cluster, and checks of
// output.
package plugintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/generated/clientset/versioned/fake"
)

// Now is the time of all fixtures.
func Now() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

// Before returns the time some minutes before Now.
func Before(minutes int) time.Time { return Now().Add(-time.Duration(minutes) * time.Minute) }

// Hostile clears the screen, forges a line, reorders text and ends a cell.
const Hostile = "=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|"

// RequirePrintable checks that no character controls the terminal.
func RequirePrintable(t *testing.T, printed string) {
	t.Helper()
	for _, r := range printed {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", printed, r)
	}
	require.NotContains(t, printed, "\n! forged")
}

// PoliciesForbidden is the note of commands that cannot list SizingPolicies.
const PoliciesForbidden = "SizingPolicies are ignored: list SizingPolicies: sizingpolicies is forbidden: "

// AskServer runs a command against an API server with empty lists, and returns the requested paths.
func AskServer(t *testing.T, commands []*cobra.Command, absent string, args ...string) (paths []string, code int, out, errs string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		paths = append(paths, r.URL.Path)
		if absent != "" && strings.HasSuffix(r.URL.Path, absent) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"k","namespace":"mine"}}],"clusters":[{"name":"k","cluster":{"server":%q}}]}`, server.URL), 0o600))
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), commands, append(args, "--kubeconfig="+file), &o, &e)
	return paths, code, o.String(), e.String()
}

// Printed returns a report in an output format.
func Printed(t *testing.T, a cli.Report, format string) string {
	t.Helper()
	var out bytes.Buffer
	o := cli.OutputFlag{Format: format}
	require.NoError(t, o.Validate())
	require.NoError(t, o.Print(&out, &out, a))
	return out.String()
}

// InTheDocs checks that docs/kubectl.md shows the output of a command.
func InTheDocs(t *testing.T, command, text string) {
	t.Helper()
	InTheDocsOf(t, "kubectl.md", command, text)
}

// InTheDocsOf checks that a page shows the output of a command.
func InTheDocsOf(t *testing.T, name, command, text string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	if want := "$ kubectl loadline " + command + "\n" + text + "```\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/%s does not have %q", name, want)
	}
}

// DeploymentsIn returns the Deployments of manifests, in their order.
func DeploymentsIn(t *testing.T, files ...string) (all []*appsv1.Deployment) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
			d := &appsv1.Deployment{}
			require.NoError(t, yaml.Unmarshal(part, d))
			if d.Kind == "Deployment" {
				d.CreationTimestamp = metav1.NewTime(Before(600))
				all = append(all, d)
			}
		}
	}
	require.Len(t, all, 3)
	return all
}

// ManifestDeployments returns the Deployments of deploy/base.
func ManifestDeployments(t *testing.T) []*appsv1.Deployment {
	t.Helper()
	return DeploymentsIn(t, "../../deploy/base/recommender/deployment.yaml", "../../deploy/base/updater/deployment.yaml", "../../deploy/base/admission-controller/deployment.yaml")
}

// ProxyUsage is the usage of the pod of the DaemonSet without a VPA.
func ProxyUsage() []usage.Sample {
	key := usage.ContainerKey{Namespace: "kube-system", Pod: "proxy-a", Container: "a"}
	var all []usage.Sample
	for i := range 100 {
		at := Before(5 * (100 - i))
		all = append(all, usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.Amount(100 + 5*i)},
			usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: resources.Amount(300+i) << 20})
	}
	return all
}

// Response is a response of a proxied request. It fails with Err, if that is not nil.
type Response struct {
	Text string
	Err  error
}

// DoRaw returns the text.
func (r Response) DoRaw(context.Context) ([]byte, error) { return []byte(r.Text), r.Err }

// Stream returns the text.
func (r Response) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(r.Text)), r.Err
}

// Resources returns a list of CPU and memory.
func Resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// OwnedBy returns a reference to a controller.
func OwnedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
}

// Shop is a node with three pods of a Deployment that usually use 0.5 cores and at times 1.4, one pod of
// another Deployment during a resize, and one of a DaemonSet without a VPA.
type Shop struct {
	Policy loadlinev1alpha1.SizingPolicy
	VPA    vpav1.VerticalPodAutoscaler
	Pods   map[string]*corev1.Pod
	Node   corev1.Node
	More   []runtime.Object
	Record *loadlinev1alpha1.SizingRecord // of the first Deployment
	Own    []runtime.Object               // further VPAs, policies and records
	Hidden string                         // resource that cannot be listed
}

// NewShop returns a Shop with a policy in a dry run of sharing.
func NewShop() *Shop {
	old := metav1.NewTime(Now().Add(-48 * time.Hour))
	s := &Shop{Pods: map[string]*corev1.Pod{}}
	s.Policy = loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: loadlinev1alpha1.SizingPolicySpec{
		Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{"shop"}}, Recipe: new("cruisekube"),
		Workloads: []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Rollout:   &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto)},
		Sharing:   &loadlinev1alpha1.Sharing{Mode: new(loadlinev1alpha1.SharingDryRun)},
	}}
	s.VPA = vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{fleet.PolicyLabel: "shop"}}}
	s.VPA.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
	s.VPA.Status.Recommendation = &vpav1.RecommendedPodResources{ContainerRecommendations: []vpav1.RecommendedContainerResources{{
		ContainerName: "a", LowerBound: Resources("500m", "150Mi"), Target: Resources("1400m", "200Mi"), UpperBound: Resources("1500m", "250Mi")}}}
	pod := func(namespace, name, app, kind, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}, OwnerReferences: OwnedBy(kind, owner)}}
		p.Spec.NodeName = "n1"
		p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: Resources("1400m", "200Mi")}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &old, QOSClass: corev1.PodQOSBurstable}
		s.Pods[name] = p
		return p
	}
	for _, app := range []string{"web", "front"} {
		s.More = append(s.More,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, CreationTimestamp: old}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: TemplateWith("a")}},
			&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app + "-1", OwnerReferences: OwnedBy("Deployment", app)}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3))}})
	}
	for _, name := range []string{"web-1-c", "web-1-a", "web-1-b"} {
		pod("shop", name, "web", "ReplicaSet", "web-1")
	}
	pod("shop", "front-1-a", "front", "ReplicaSet", "front-1").Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu", LastTransitionTime: metav1.NewTime(Before(5))}}
	pod("kube-system", "proxy-a", "proxy", "DaemonSet", "proxy").Spec.Containers[0].Resources.Requests = Resources("100m", "50Mi")
	pod("shop", "job-a", "job", "Job", "job").Status.Phase = corev1.PodSucceeded
	s.Node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	s.Node.Status.Allocatable = Resources("8", "32Gi")
	s.Node.Status.NodeInfo.KubeletVersion = "v1.35.0"
	s.More = append(s.More, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return s
}

// Clients returns clients of a cluster with the shop.
func (s *Shop) Clients() (*kubefake.Clientset, *fake.Clientset) {
	objects := append([]runtime.Object{&s.Node}, s.More...)
	for _, p := range s.Pods {
		objects = append(objects, p)
	}
	own := append([]runtime.Object{&s.Policy}, s.Own...)
	for _, app := range []string{"web", "front"} {
		v := s.VPA.DeepCopy()
		v.Name, v.Spec.TargetRef = "deployment-"+app, &autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: app}
		own = append(own, v)
	}
	if s.Record != nil {
		own = append(own, s.Record)
	}
	kube := kubefake.NewClientset(objects...)
	kube.PrependReactor("list", s.Hidden, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return s.Hidden != "", nil, errors.New("forbidden")
	})
	return kube, fake.NewSimpleClientset(own...)
}

// TemplateWith returns a pod template with some containers.
func TemplateWith(containers ...string) (t corev1.PodTemplateSpec) {
	for _, c := range containers {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: c, Image: "x", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}})
	}
	return t
}

// Forbid rejects lists of a resource.
func Forbid(fake *clienttesting.Fake, resource string) {
	fake.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	})
}
