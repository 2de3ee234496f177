package instance

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"loadline.dev/loadline/hack/cluster/pki"
)

func TestFolder_WritesInstanceFiles(t *testing.T) {
	folder, now := Folder(t.TempDir()), time.Now()
	authority, err := pki.NewAuthority(now)
	require.NoError(t, err)
	require.NoError(t, folder.WritePKI(authority, now))
	require.NoError(t, folder.WriteKubeconfigs(authority, "shop", 4711, now))
	for _, name := range []string{"ca.crt", "server.crt", "server.key", "front-proxy.crt", "front-proxy.key", "kubelet-client.crt", "kubelet-client.key", "service-accounts.key"} {
		info, err := os.Stat(folder.Path("pki", name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	config, err := clientcmd.BuildConfigFromFlags("", folder.Kubeconfig())
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:4711", config.Host)
	raw, err := clientcmd.LoadFromFile(folder.Kubeconfig())
	require.NoError(t, err)
	require.Equal(t, "shop", raw.CurrentContext)

	require.NoError(t, folder.WriteTools(State{Program: "/a b/it's"}))
	script, err := os.ReadFile(folder.Path("bin", "kubectl"))
	require.NoError(t, err)
	require.Contains(t, string(script), `exec '/a b/it'\''s' kubectl --dir '`+string(folder)+`'`)
	audit, err := os.ReadFile(folder.Path(AuditPolicyFile))
	require.NoError(t, err)
	require.NotContains(t, string(audit), "RequestResponse")

	require.NoError(t, folder.WriteTools(State{Options: Options{AuditObjectsOf: "system:serviceaccounts:kube-system"}}))
	audit, err = os.ReadFile(folder.Path(AuditPolicyFile))
	require.NoError(t, err)
	require.Contains(t, string(audit), `{level: RequestResponse, userGroups: ["system:serviceaccounts:kube-system"], verbs: [create, update, patch]}`)
}

func TestFreePorts_AreFreeAndDistinct(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	ports, err := FreePorts(names)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, name := range names {
		require.False(t, seen[ports[name]])
		seen[ports[name]] = true
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", Loopback, ports[name]))
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}

func sleeper(t *testing.T) Process {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	process, err := ProcessOf(cmd.Process.Pid)
	require.NoError(t, err)
	return process
}

func TestKillLeftovers_SparesRecycledPID(t *testing.T) {
	folder := Folder(t.TempDir())
	ours, stranger := sleeper(t), sleeper(t)
	require.NoError(t, folder.SavePID("etcd", ours.PID))
	require.NoError(t, folder.SavePID("kwok", stranger.PID))
	// As if kwok had ended and its PID belonged to another process.
	old := fmt.Sprintf("%d %d\n", stranger.PID, stranger.Start-1)
	require.NoError(t, os.WriteFile(folder.Path(pidsDir, "kwok.pid"), []byte(old), 0o644))

	require.NoError(t, folder.KillLeftovers())
	require.Eventually(t, func() bool { return !ours.Alive() }, time.Minute, 5*time.Millisecond)
	require.True(t, stranger.Alive())
	require.NoError(t, ours.Signal(syscall.SIGKILL), "a second time is no error")
}

func TestKillLeftovers_RejectsInvalidPIDFiles(t *testing.T) {
	folder := Folder(t.TempDir())
	require.NoError(t, os.Mkdir(folder.Path(pidsDir), 0o755))
	for _, text := range []string{"", "abc", "-1 5", "1 5", "0 0"} {
		require.NoError(t, os.WriteFile(folder.Path(pidsDir, "etcd.pid"), []byte(text), 0o644))
		require.ErrorContains(t, folder.KillLeftovers(), "want a process number and its start time", text)
	}
}

func TestClaim_RejectsForeignFolder(t *testing.T) {
	folder := Folder(t.TempDir())
	require.NoError(t, folder.Claim(), "an empty folder is fine")
	precious := folder.Path("thesis.txt")
	require.NoError(t, os.WriteFile(precious, []byte("x"), 0o644))
	require.ErrorContains(t, folder.Claim(), "contains unrelated files")

	file := Folder(precious)
	require.ErrorContains(t, file.Claim(), "choose another one with --dir")
}

func TestLock_IsExclusiveUntilClosed(t *testing.T) {
	folder := Folder(t.TempDir())
	lock, err := folder.Lock()
	require.NoError(t, err)
	_, err = folder.Lock()
	require.ErrorIs(t, err, ErrRunning)
	time.AfterFunc(50*time.Millisecond, func() { _ = lock.Close() })
	second, err := folder.Await(5 * time.Second)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

func TestOptions_ReportsAllInvalidOptions(t *testing.T) {
	traces := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(traces, "bad.csv"), []byte("time,cpu_cores,memory_bytes\nx,1,1\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(traces, "bad.yaml"), []byte("{kind: Pod}"), 0o644))
	o := Options{Name: "No Name", Nodes: 0, NodeCPU: "many", NodeMemory: "-1", Traces: traces, Scrape: time.Second, Stages: traces, ResizeCPU: "much", ResizeMemory: "0", PodNetwork: true}
	err := o.Validate()
	for _, want := range []string{
		"--name: want", "--nodes: want 1 to 5000, got 0", "--node-cpu: want a quantity above 0, such as 8 or 32Gi, got many",
		"--node-memory: want", "--node-pods: want 1 or more", "--speed: want", "--metrics-every: want 10s or more",
		"--traces: " + filepath.Join(traces, "bad.csv") + " line 2: time: want a number",
		"--stages: bad.yaml: stage \"\": apiVersion: want", "--resize-cpu: want a quantity above 0", "--resize-memory: want a quantity above 0",
		"--pod-network: want --real-node beside it",
	} {
		require.ErrorContains(t, err, want)
	}
	o.Traces = filepath.Join(traces, "nothing")
	require.ErrorContains(t, o.Validate(), "--traces: want a folder, got "+o.Traces)
	o.RealNode = true
	require.NotContains(t, o.Validate().Error(), "--nodes", "a real node needs no others")
	o.Stages = filepath.Join(traces, "bad.yaml")
	require.ErrorContains(t, o.Validate(), "--stages: want a folder, got "+o.Stages)
}

func TestOptions_MakesFoldersAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	o := Options{Traces: "t", Stages: "s"}
	require.NoError(t, o.Complete())
	require.Equal(t, Options{Traces: filepath.Join(here, "t"), Stages: filepath.Join(here, "s")}, o)
	require.NoError(t, (&Options{}).Complete())
}

func TestKubectlTarget_ResolvesInstance(t *testing.T) {
	folder := Folder(t.TempDir())
	require.NoError(t, os.WriteFile(folder.Kubeconfig(), nil, 0o600))
	t.Setenv("KUBECONFIG", "mine")
	t.Setenv("KUBECACHEDIR", "")
	t.Setenv(DirVariable, "")
	args, err := KubectlTarget([]string{"kubectl", "get", "pods", "--dir", "x"})
	require.NoError(t, err)
	require.Equal(t, []string{"kubectl", "get", "pods", "--dir", "x"}, args)
	require.Equal(t, "mine", os.Getenv("KUBECONFIG"))
	for _, form := range [][]string{{"--dir", string(folder)}, {"--dir=" + string(folder)}} {
		args, err = KubectlTarget(append(append([]string{"kubectl"}, form...), "get", "pods"))
		require.NoError(t, err)
		require.Equal(t, []string{"kubectl", "get", "pods"}, args)
		require.Equal(t, folder.Kubeconfig(), os.Getenv("KUBECONFIG"))
	}
	_, err = KubectlTarget([]string{"kubectl", "--dir", "/nowhere", "get"})
	require.ErrorContains(t, err, "no cluster in /nowhere")
}
