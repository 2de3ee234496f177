package sizes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// market is a cluster of random workloads without VPAs.
type market struct {
	plugintest.Shop

	exported map[string]runtime.Object // exported workloads by "namespace/kind/name"
	left     []string                  // objects that must be reported as left out
	use      *inventory.Estimator
}

// podOf adds a running pod with usage of its containers.
func (m *market) podOf(namespace, name string, owners []metav1.OwnerReference, containers ...string) {
	m.unusedPodOf(namespace, name, owners, containers...)
	for _, c := range containers {
		key := usage.ContainerKey{Namespace: namespace, Pod: name, Container: c}
		m.use.Add(usage.Sample{Container: key, Kind: resources.CPU, At: plugintest.Before(5), Amount: 300})
		m.use.Add(usage.Sample{Container: key, Kind: resources.Memory, At: plugintest.Before(5), Amount: 300 << 20})
	}
}

func (m *market) unusedPodOf(namespace, name string, owners []metav1.OwnerReference, containers ...string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), OwnerReferences: owners}}
	p.Status.Phase = corev1.PodRunning
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "x", Resources: corev1.ResourceRequirements{Requests: plugintest.Resources("100m", "50Mi")}})
	}
	m.Pods[namespace+"/"+name] = p
}

func owner(version, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}}
}

// marketForms add a workload of one form with its pods.
var marketForms = map[string]func(m *market, meta metav1.ObjectMeta, containers []string){
	"Deployment": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.workload("apps/v1", "Deployment", &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: plugintest.TemplateWith(containers...)}})
		set := meta.Name + "-1"
		m.More = append(m.More, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: set, OwnerReferences: owner("apps/v1", "Deployment", meta.Name)}})
		m.podOf(meta.Namespace, set+"-a", owner("apps/v1", "ReplicaSet", set), containers...)
		m.podOf(meta.Namespace, set+"-b", owner("apps/v1", "ReplicaSet", set), containers...)
	},
	"injected": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.workload("apps/v1", "DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: plugintest.TemplateWith(containers...)}})
		m.podOf(meta.Namespace, "daemon-"+meta.Name, owner("apps/v1", "DaemonSet", meta.Name), append(slices.Clone(containers), "helper")...)
		m.left = append(m.left, "container helper of DaemonSet "+meta.Name+" in namespace "+meta.Namespace)
	},
	"StatefulSet": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.workload("apps/v1", "StatefulSet", &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: plugintest.TemplateWith(containers...)}})
		m.podOf(meta.Namespace, "set-"+meta.Name, owner("apps/v1", "StatefulSet", meta.Name), containers...)
	},
	"ReplicaSet": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.workload("apps/v1", "ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Template: plugintest.TemplateWith(containers...)}})
		m.podOf(meta.Namespace, "replica-"+meta.Name, owner("apps/v1", "ReplicaSet", meta.Name), containers...)
	},
	"ReplicationController": func(m *market, meta metav1.ObjectMeta, containers []string) {
		of := plugintest.TemplateWith(containers...)
		m.workload("v1", "ReplicationController", &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Template: &of}})
		m.podOf(meta.Namespace, "controller-"+meta.Name, owner("v1", "ReplicationController", meta.Name), containers...)
	},
	"CronJob": func(m *market, meta metav1.ObjectMeta, containers []string) {
		c := &batchv1.CronJob{ObjectMeta: meta}
		c.Spec.JobTemplate.Spec.Template = plugintest.TemplateWith(containers...)
		m.workload("batch/v1", "CronJob", c)
		for _, run := range []string{"-1", "-2"} {
			name := "run-" + meta.Name + run
			m.More = append(m.More, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: name, OwnerReferences: owner("batch/v1", "CronJob", meta.Name)}})
			m.podOf(meta.Namespace, name, owner("batch/v1", "Job", name), containers...)
		}
	},
	"Job": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.More = append(m.More, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: plugintest.TemplateWith(containers...)}})
		m.podOf(meta.Namespace, "job-"+meta.Name, owner("batch/v1", "Job", meta.Name), containers...)
		m.left = append(m.left, "Job "+meta.Name+" in namespace "+meta.Namespace)
	},
	"owned": func(m *market, meta metav1.ObjectMeta, containers []string) {
		meta.OwnerReferences = owner("db.example.com/v1", "Database", "main")
		m.More = append(m.More, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: plugintest.TemplateWith(containers...)}})
		m.podOf(meta.Namespace, "owned-"+meta.Name, owner("apps/v1", "StatefulSet", meta.Name), containers...)
		m.left = append(m.left, "StatefulSet "+meta.Name+" in namespace "+meta.Namespace)
	},
	"custom": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.podOf(meta.Namespace, "custom-"+meta.Name, owner("ci.example.com/v1", "Run", meta.Name), containers...)
		m.left = append(m.left, "Run.ci.example.com "+meta.Name+" in namespace "+meta.Namespace)
	},
	"bare": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.podOf(meta.Namespace, "bare-"+meta.Name, nil, containers...)
		m.left = append(m.left, "pod "+meta.Namespace+"/bare-"+meta.Name)
	},
	"static": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.podOf(meta.Namespace, "static-"+meta.Name, owner("v1", "Node", "n1"), containers...)
		m.left = append(m.left, "pod "+meta.Namespace+"/static-"+meta.Name)
	},
	"unused": func(m *market, meta metav1.ObjectMeta, containers []string) {
		m.More = append(m.More, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: plugintest.TemplateWith(containers...)}})
		m.unusedPodOf(meta.Namespace, "unused-"+meta.Name, owner("apps/v1", "DaemonSet", meta.Name), containers...)
		for _, c := range containers {
			m.left = append(m.left, "container "+c+" of DaemonSet "+meta.Name+" in namespace "+meta.Namespace)
		}
	},
}

func (m *market) workload(version, kind string, object runtime.Object) {
	meta := object.(metav1.Object)
	object.GetObjectKind().SetGroupVersionKind(target.NewKey(meta.GetNamespace(), version, kind, meta.GetName()).GroupKind().WithVersion("v1"))
	m.exported[meta.GetNamespace()+"/"+kind+"/"+meta.GetName()] = object
	m.More = append(m.More, object)
}

func newMarket(t *testing.T, random *rand.Rand) *market {
	t.Helper()
	book, err := recipe.NewCache("vpa", recipe.DefaultConfig())
	require.NoError(t, err)
	m := &market{Shop: *plugintest.NewShop(), exported: map[string]runtime.Object{}}
	m.Pods, m.More = map[string]*corev1.Pod{}, nil
	m.use = emptyEstimator(book)
	forms := slices.Sorted(maps.Keys(marketForms))
	taken := map[string]bool{}
	for range 1 + random.IntN(8) {
		form := forms[random.IntN(len(forms))]
		meta := metav1.ObjectMeta{Namespace: []string{"a", "b"}[random.IntN(2)], Name: []string{"web", "db", "etl"}[random.IntN(3)]}
		kind := form
		switch form {
		case "injected", "unused":
			kind = "DaemonSet"
		case "owned":
			kind = "StatefulSet"
		}
		if id := meta.Namespace + kind + meta.Name; !taken[id] {
			taken[id] = true
			marketForms[form](m, meta, []string{"app", "side"}[:1+random.IntN(2)])
		}
	}
	return m
}

func TestExport_WritesEachWorkloadOnceOrReportsIt(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 150 {
		m := newMarket(t, random)
		kube, own := m.Clients()
		for group, kind := range map[string]string{"ci.example.com/v1": "Run", "db.example.com/v1": "Database"} { // without a scale subresource
			of := metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true}
			kube.Resources = append(kube.Resources, &metav1.APIResourceList{GroupVersion: group, APIResources: []metav1.APIResource{of}})
		}
		q := request(t, &m.Shop, kube, "")
		q.Namespace = ""
		found, err := readWorkloads(t.Context(), own, q, inventory.Selection{Selector: labels.Everything()})
		require.NoError(t, err)
		found.sizes = sizesOf(found.workloads, m.use)
		for _, form := range exportForms {
			var out bytes.Buffer
			problems, err := writeSizes(&out, form, found.sizes)
			require.NoError(t, err)
			problems = append(problems, found.problems...)
			for _, left := range m.left {
				named := slices.DeleteFunc(slices.Clone(problems), func(p string) bool { return !strings.HasPrefix(p, left+" is left out: ") })
				require.Len(t, named, 1, "%s: %s: %v", form, left, problems)
			}
			require.Len(t, problems, len(m.left), "%s: %v", form, problems)
			if form == "helm" {
				requireValues(t, m, out.Bytes())
				continue
			}
			written := patchesIn(t, form, out.Bytes())
			require.ElementsMatch(t, slices.Collect(maps.Keys(m.exported)), slices.Collect(maps.Keys(written)), form)
			for id, patch := range written {
				requireApplies(t, m.exported[id], patch)
			}
		}
	}
}

func patchesIn(t *testing.T, form string, out []byte) map[string][]byte {
	t.Helper()
	texts := bytes.Split(out, []byte("---\n"))
	if form == "kustomize" {
		var k struct {
			Patches []struct {
				Patch  string
				Target struct{ Kind, Name, Namespace string }
			}
		}
		require.NoError(t, yaml.Unmarshal(out, &k))
		texts = nil
		for _, p := range k.Patches {
			texts = append(texts, []byte(p.Patch))
		}
	}
	patches := map[string][]byte{}
	for _, text := range texts {
		var m metav1.PartialObjectMetadata
		if len(text) == 0 {
			continue
		}
		require.NoError(t, yaml.Unmarshal(text, &m))
		id := m.Namespace + "/" + m.Kind + "/" + m.Name
		require.NotContains(t, patches, id)
		patch, err := yaml.YAMLToJSON(text)
		require.NoError(t, err)
		patches[id] = patch
	}
	return patches
}

func requireApplies(t *testing.T, object runtime.Object, patch []byte) {
	t.Helper()
	before, err := json.Marshal(object)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, patch, object)
	require.NoError(t, err)
	var was, is map[string]any
	require.NoError(t, json.Unmarshal(before, &was))
	require.NoError(t, json.Unmarshal(after, &is))
	require.NotEqual(t, was, is)
	forget := func(object map[string]any) {
		spec := object["spec"].(map[string]any)
		if job, is := spec["jobTemplate"].(map[string]any); is {
			spec = job["spec"].(map[string]any)
		}
		for _, c := range spec["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any) {
			delete(c.(map[string]any), "resources")
		}
	}
	forget(was)
	forget(is)
	require.Equal(t, was, is)
}

func requireValues(t *testing.T, m *market, out []byte) {
	t.Helper()
	var values map[string]map[string]any
	require.NoError(t, yaml.Unmarshal(out, &values))
	require.Len(t, values, len(m.exported))
	for id := range m.exported {
		parts := strings.Split(id, "/")
		full := fmt.Sprintf("%s/%s/%s", parts[0], strings.ToLower(parts[1]), parts[2])
		require.True(t, values[parts[2]] != nil || values[full] != nil, "%s: %s", id, out)
	}
}

func TestCreate_OneVPAForRunsOfCronJob(t *testing.T) {
	m := &market{Shop: *plugintest.NewShop(), exported: map[string]runtime.Object{}, use: emptyEstimator(nil)}
	m.Pods, m.More = map[string]*corev1.Pod{}, nil
	marketForms["CronJob"](m, metav1.ObjectMeta{Namespace: "a", Name: "report"}, []string{"app"})
	marketForms["Job"](m, metav1.ObjectMeta{Namespace: "a", Name: "etl"}, []string{"app"})
	kube, own := m.Clients()
	q := request(t, &m.Shop, kube, "")
	q.Namespace = "a"
	found, err := readWorkloads(t.Context(), own, q, inventory.Selection{Selector: labels.Everything(), Unsized: true})
	require.NoError(t, err)
	for _, want := range []createOptions{{}, {Policy: "all"}} {
		c := objects(t, found.workloads, want)
		require.Len(t, c.documents(), 1)
		require.Len(t, c.problems, 1)
		require.Contains(t, c.problems[0], "Job etl in namespace a is left out: ")
	}
	require.Equal(t, "report", objects(t, found.workloads, createOptions{}).vpas[0].Spec.TargetRef.Name)
	require.Len(t, objects(t, found.workloads, createOptions{Named: true}).vpas, 2, "a Job that is an argument gets one")
}
