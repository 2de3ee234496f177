package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/e2e/harness"
)

// availableWithin is the maximum duration of a rollout of the programs on a busy machine.
const availableWithin = 3 * time.Minute

// Runs every installation method from an empty cluster to an empty cluster, next to existing
// workloads that must survive.
func TestInstall_FullLifecycle(t *testing.T) {
	load(t, "before")
	load(t, "after")
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			s := &installation{way: w}
			// Sized by a VPA, sized by a policy, and created under load.
			s.shop = run(t, "shop-"+w.name, "shop", 2)
			s.crew = run(t, "crew-"+w.name, "crew", 2)
			s.rush = run(t, "rush-"+w.name, "rush", 0)
			before := inventory(t, s.workloads()...)
			s.install(t)
			s.sizeByVPA(t)
			s.sizeByPolicy(t)
			s.upgrade(t)
			s.kill(t)
			s.goBack(t)
			s.audit(t)
			s.detach(t)
			s.uninstall(t, before)
			for _, namespace := range s.workloads() {
				remove(t, namespace)
			}
		})
	}
}

type installation struct {
	way
	shop, crew, rush harness.Workload
}

func (s *installation) workloads() []string {
	return []string{s.shop.Namespace, s.crew.Namespace, s.rush.Namespace}
}

func (s *installation) install(t *testing.T) {
	began := time.Now()
	s.way.install(t, "before")
	times.since(t, s.name, "the command - it returns", began)
	s.awaitAvailable(t)
	times.since(t, s.name, "the command - all pods of the programs are ready", began)
	s.running(t, "before")
	hooks, err := cluster.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, hooks.Items, 1)
	for _, hook := range hooks.Items[0].Webhooks {
		require.NotNil(t, hook.ClientConfig.Service, "the API server calls %s at its Service", hook.Name)
		require.Equal(t, s.namespace, hook.ClientConfig.Service.Namespace)
	}
}

func (s *installation) awaitAvailable(t *testing.T) {
	t.Helper()
	for _, program := range programs {
		kubectl(t, "-n", s.namespace, "rollout", "status", "deployment/"+s.prefix+program, "--timeout="+availableWithin.String())
	}
}

func (s *installation) pods(t *testing.T, program string) (found []corev1.Pod) {
	t.Helper()
	list, err := cluster.Kube.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, pod := range list.Items {
		if strings.HasPrefix(pod.Name, s.prefix+program+"-") && pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	require.NotEmpty(t, found, program)
	return found
}

// running requires that the pods of the programs use images of a tag and have no restarts.
func (s *installation) running(t *testing.T, tag string) {
	t.Helper()
	for _, program := range programs {
		for _, pod := range s.pods(t, program) {
			require.True(t, strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+tag), "%s runs %s", pod.Name, pod.Spec.Containers[0].Image)
			require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount, pod.Name)
			require.NotNil(t, pod.Spec.Containers[0].LivenessProbe)
			require.NotNil(t, pod.Spec.Containers[0].ReadinessProbe)
		}
	}
}

func (s *installation) sizeByVPA(t *testing.T) {
	before := awaitRunning(t, s.shop)
	began := time.Now()
	require.NoError(t, cluster.CreateVPA(t.Context(), s.shop, vpav1.UpdateModeInPlaceOrRecreate))
	eventually(t, 5*time.Minute, "the VPA has a recommendation", func() error {
		vpa, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalers(s.shop.Namespace).Get(t.Context(), s.shop.Name, metav1.GetOptions{})
		if err == nil && vpa.Status.Recommendation == nil {
			err = fmt.Errorf("%+v", vpa.Status)
		}
		return err
	})
	times.since(t, s.name, "VPA created - first recommendation", began)
	awaitResized(t, s.shop, before)
	times.since(t, s.name, "VPA created - first pod resized in place, in force", began)
	awaitSizedAtCreation(t, &s.shop)
}

func (s *installation) sizeByPolicy(t *testing.T) {
	before := awaitRunning(t, s.crew)
	began := time.Now()
	_, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Create(t.Context(), &loadlinev1alpha1.SizingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "crew"},
		Spec: loadlinev1alpha1.SizingPolicySpec{
			Namespaces: loadlinev1alpha1.NamespaceSelection{Names: []string{s.crew.Namespace}},
			Workloads:  []loadlinev1alpha1.WorkloadSelection{{APIVersion: "apps/v1", Kind: "Deployment"}},
			Rollout:    &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeAuto), MinHistory: &metav1.Duration{}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	awaitResized(t, s.crew, before)
	times.since(t, s.name, "SizingPolicy created - first pod resized in place, in force", began)
	awaitSizedAtCreation(t, &s.crew)
}

// upgrade replaces programs, definitions and permissions with the next version. Every pod that is
// created meanwhile must be sized.
func (s *installation) upgrade(t *testing.T) {
	advised(t, s.rush)
	load := createPods(t, s.rush)
	began := time.Now()
	s.way.install(t, "after")
	s.awaitAvailable(t)
	times.since(t, s.name, "upgrade under load - all pods of the programs are of the new version", began)
	s.running(t, "after")
	load.stop()
	t.Logf("%d pods were created meanwhile, %d of them sized", load.created, load.changed)
	require.Greater(t, load.created, 20)
	require.Empty(t, load.wrong, "of %d creations", load.created)
}

// kill deletes one webhook pod without grace period, and then kills all processes of the programs.
// No pod creation fails, and everything recovers.
func (s *installation) kill(t *testing.T) {
	load := createPods(t, s.rush)
	victim := s.pods(t, "admission-controller")[0]
	gone := time.Now()
	require.NoError(t, cluster.Kube.CoreV1().Pods(s.namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	s.awaitAvailable(t)
	times.add(t, s.name, "a pod of the webhook deleted without grace - every new pod is sized", max(0, load.awaitSized(t).Sub(gone)))
	created, changed := load.counts()
	t.Logf("%d pods were created meanwhile, %d of them sized", created, changed)
	began := time.Now()
	for _, program := range programs {
		for _, pod := range s.pods(t, program) {
			killProcesses(t, &pod, program)
		}
	}
	eventually(t, availableWithin, "all programs run again", func() error {
		for _, program := range programs {
			for _, pod := range s.pods(t, program) {
				if pod.Status.ContainerStatuses[0].RestartCount == 0 || !ready(&pod) {
					return fmt.Errorf("%s: %+v", pod.Name, pod.Status.ContainerStatuses[0])
				}
			}
		}
		return nil
	})
	times.since(t, s.name, "all processes killed - all pods of the programs are ready again", began)
	times.add(t, s.name, "all processes killed - every new pod is sized", max(0, load.awaitSized(t).Sub(began)))
	awaitSizedAtCreation(t, &s.shop)
	load.stop()
	t.Logf("%d pods were created meanwhile, %d of them sized", load.created-created, load.changed-changed)
	require.Zero(t, load.failed, load.wrong)
}

// goBack downgrades and upgrades again. Each version continues from the checkpoints of the other,
// policy and records stay, and no pod is replaced.
func (s *installation) goBack(t *testing.T) {
	pods := map[types.UID]bool{}
	for _, w := range []harness.Workload{s.shop, s.crew} {
		for _, pod := range awaitRunning(t, w) {
			pods[pod.UID] = true
		}
	}
	policy, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), "crew", metav1.GetOptions{})
	require.NoError(t, err)
	records, err := cluster.VPA.LoadlineV1alpha1().SizingRecords(s.crew.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, records.Items)
	held := s.checkpoint(t)
	for _, tag := range []string{"before", "after"} {
		began := time.Now()
		s.way.install(t, tag)
		s.awaitAvailable(t)
		times.since(t, s.name, "back and forth - all pods of the programs are of the version "+tag, began)
		s.running(t, tag)
		s.alone(t, tag) // the other version writes checkpoints on exit
		taken := s.checkpoint(t).Status.TotalSamplesCount
		eventually(t, 6*time.Minute, "version "+tag+" goes on with the checkpoint", func() error {
			kept := s.checkpoint(t)
			require.Equal(t, held.UID, kept.UID, "the same object")
			require.Equal(t, held.Status.FirstSampleStart, kept.Status.FirstSampleStart, "the same history")
			if kept.Status.TotalSamplesCount <= taken {
				return fmt.Errorf("%d samples, not more than %d", kept.Status.TotalSamplesCount, taken)
			}
			return nil
		})
		same, err := cluster.VPA.LoadlineV1alpha1().SizingPolicies().Get(t.Context(), policy.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, policy.Spec, same.Spec)
		for _, r := range records.Items {
			kept, err := cluster.VPA.LoadlineV1alpha1().SizingRecords(r.Namespace).Get(t.Context(), r.Name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, r.UID, kept.UID)
			require.GreaterOrEqual(t, ended(kept), ended(&r), "rounds of %s", r.Name)
		}
		for _, w := range []harness.Workload{s.shop, s.crew} {
			for _, pod := range awaitRunning(t, w) {
				require.True(t, pods[pod.UID], "%s was not there", pod.Name)
			}
		}
	}
	awaitSizedAtCreation(t, &s.shop)
}

// alone waits until no recommender of another version is left, including terminating ones.
func (s *installation) alone(t *testing.T, tag string) {
	t.Helper()
	eventually(t, 2*time.Minute, "the other recommender has ended", func() error {
		list, err := cluster.Kube.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if strings.HasPrefix(pod.Name, s.prefix+"recommender-") && !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+tag) {
				return fmt.Errorf("%s is there", pod.Name)
			}
		}
		return nil
	})
}

func ended(record *loadlinev1alpha1.SizingRecord) (n int) {
	for i := range record.Status.Rounds {
		if record.Status.Rounds[i].Outcome != "" {
			n++
		}
	}
	return n
}

func (s *installation) checkpoint(t *testing.T) *vpav1.VerticalPodAutoscalerCheckpoint {
	t.Helper()
	found, err := cluster.VPA.AutoscalingV1().VerticalPodAutoscalerCheckpoints(s.shop.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	return &found.Items[0]
}

// killProcesses kills the program in a pod, found by the control group of the pod.
func killProcesses(t *testing.T, pod *corev1.Pod, program string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	killed := 0
	for _, folder := range folders {
		// Both fail for a process that has exited meanwhile.
		groups, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		binary, _ := os.Readlink(filepath.Join(folder, "exe"))
		if strings.Contains(string(groups), string(pod.UID)) && filepath.Base(binary) == program {
			var pid int
			_, err := fmt.Sscan(filepath.Base(folder), &pid)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	require.Equal(t, 1, killed, "processes of %s", pod.Name)
}

// audit requires that no request of the programs was forbidden.
func (s *installation) audit(t *testing.T) {
	accounts := harness.Accounts{Namespace: s.namespace, Prefix: s.prefix}
	use, err := cluster.PermissionsOf(accounts)
	require.NoError(t, err)
	require.Empty(t, use.Forbidden)
	asked := map[string]int{}
	require.NoError(t, cluster.RequestsOf(accounts, func(r harness.Request) { asked[r.Account]++ }))
	for _, program := range programs {
		require.Positive(t, asked[s.prefix+program], program)
	}
	t.Logf("permissions: %d requests, none forbidden, %d of %d permissions used", use.Requests, use.Granted-len(use.Unused), use.Granted)
}

// detach detaches the policy from its pods, as the docs instruct users to do before uninstalling.
func (s *installation) detach(t *testing.T) {
	plugin := filepath.Join(root, "bin", "kubectl-loadline")
	eventually(t, time.Minute, "no pod has a note of a change", func() error {
		out, err := exec.CommandContext(t.Context(), plugin, "policy", "detach", "--kubeconfig", cluster.Kubeconfig(), "crew").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		pods, err := cluster.Pods(t.Context(), s.crew)
		for _, pod := range pods {
			if note := pod.Annotations["loadline.dev/original"]; note != "" {
				return fmt.Errorf("%s has %s", pod.Name, note)
			}
		}
		return err
	})
}

// uninstall requires that no new object is left and that sized pods continue to run unchanged.
func (s *installation) uninstall(t *testing.T, before map[string]bool) {
	type container struct {
		id       string
		restarts int32
		cpu      string
	}
	containers := func() map[types.UID]container {
		found := map[types.UID]container{}
		for _, w := range []harness.Workload{s.shop, s.crew} {
			for _, pod := range awaitRunning(t, w) {
				status := pod.Status.ContainerStatuses[0]
				found[pod.UID] = container{status.ContainerID, status.RestartCount, pod.Spec.Containers[0].Resources.Requests.Cpu().String()}
			}
		}
		return found
	}
	running := containers()
	began := time.Now()
	s.way.uninstall(t)
	eventually(t, 2*time.Minute, "nothing is left", func() error {
		var left []string
		for object := range inventory(t, s.workloads()...) {
			if !before[object] {
				left = append(left, object)
			}
		}
		slices.Sort(left)
		if len(left) > 0 {
			return errors.New(strings.Join(left, ", "))
		}
		return nil
	})
	times.since(t, s.name, "uninstall - nothing is left", began)
	after := inventory(t, s.workloads()...)
	for object := range before {
		require.Contains(t, after, object)
	}
	require.Equal(t, running, containers(), "the pods go on as they were")
	scale(t, &s.shop, s.shop.Replicas+1)
	for _, pod := range awaitRunning(t, s.shop) {
		if running[pod.UID].id == "" {
			require.False(t, grown(&pod), "a new pod is as it is written")
		}
	}
}
