package realnode

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/instance"
)

func files(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		found[header.Name] = content
	}
}

func TestImageArchive_ContainsProgram(t *testing.T) {
	image, err := imageArchive([]byte("program"))
	require.NoError(t, err)
	again, err := imageArchive([]byte("program"))
	require.NoError(t, err)
	require.Equal(t, image, again, "equal programs make equal images")

	content := files(t, image)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal(content["manifest.json"], &manifest))
	require.Len(t, manifest, 1)
	require.Equal(t, []string{Image}, manifest[0].RepoTags)
	require.Len(t, manifest[0].Layers, 1)
	layer := content[manifest[0].Layers[0]]
	require.Equal(t, map[string][]byte{"burn": []byte("program")}, files(t, layer))
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(content[manifest[0].Config], &config))
	require.Equal(t, []string{"/burn"}, config.Config.Entrypoint)
	require.Equal(t, []string{"sha256:" + digest(layer)}, config.Rootfs.DiffIDs)
}

func TestFlags_RoundTrip(t *testing.T) {
	var c config
	fs := pflag.NewFlagSet("real-node", pflag.ContinueOnError)
	c.addFlags(fs)
	require.NoError(t, fs.Parse(Flags("/tmp/a b", "/cache", deb.Unpacked{"/x", "/y,z"}, "/g", 7)))
	require.Equal(t, config{folder: "/tmp/a b", kubelet: "/cache/loadline-kubelet", burn: "/cache/loadline-burn", runtime: deb.Unpacked{"/x", "/y,z"}, group: "/g", port: 7}, c)
}

func TestCheckPrograms_ReportsMissingPrograms(t *testing.T) {
	folder := t.TempDir()
	require.ErrorContains(t, CheckPrograms(folder), "make it with hack/cluster/build.sh --real-node")
	for _, name := range []string{"loadline-kubelet", "loadline-burn"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o755))
	}
	require.NoError(t, CheckPrograms(folder))
}

func TestConfig_WritesNodeFiles(t *testing.T) {
	burn := filepath.Join(t.TempDir(), "burn")
	require.NoError(t, os.WriteFile(burn, []byte("program"), 0o755))
	c := config{folder: instance.Folder(t.TempDir()), burn: burn, group: "/g", port: 4711}
	require.NoError(t, c.write("/usr/sbin/runc"))
	data, err := os.ReadFile(c.path("kubelet.yaml"))
	require.NoError(t, err)
	var kubelet map[string]any
	require.NoError(t, yaml.Unmarshal(data, &kubelet))
	require.Equal(t, "127.0.0.1", kubelet["address"], "nothing listens on other addresses")
	require.Equal(t, "/g", kubelet["cgroupRoot"])
	data, err = os.ReadFile(c.path("containerd.toml"))
	require.NoError(t, err)
	require.Contains(t, string(data), `BinaryName = "/usr/sbin/runc"`)

	plugin := exec.Command(c.path("network", "bin", "none"))
	plugin.Env = []string{"CNI_COMMAND=ADD", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/x"}
	answer, err := plugin.Output()
	require.NoError(t, err)
	var added struct {
		Interfaces []struct{ Name, Sandbox string }
		IPs        []struct{ Address string }
	}
	require.NoError(t, json.Unmarshal(answer, &added))
	require.Equal(t, "eth0", added.Interfaces[0].Name)
	require.Equal(t, "/run/netns/x", added.Interfaces[0].Sandbox)
	require.NotEmpty(t, added.IPs[0].Address)

	connects := filepath.Join(t.TempDir(), "usr", "lib", "cni", "ptp")
	require.NoError(t, os.MkdirAll(filepath.Dir(connects), 0o755))
	require.NoError(t, os.WriteFile(connects, nil, 0o755))
	c.podNetwork = true
	require.ErrorContains(t, c.write("runc"), "program ptp is in none of")
	c.runtime = deb.Unpacked{filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(connects))))}
	require.NoError(t, c.write("runc"))
	data, err = os.ReadFile(c.path("containerd.toml"))
	require.NoError(t, err)
	require.Contains(t, string(data), filepath.Dir(connects), "the distribution's plugins")
	data, err = os.ReadFile(c.path("network", "conf", "pods.conflist"))
	require.NoError(t, err)
	var list struct{ Plugins []map[string]any }
	require.NoError(t, json.Unmarshal(data, &list))
	require.Equal(t, "ptp", list.Plugins[0]["type"])

	c.burn = "/nowhere"
	require.ErrorContains(t, c.write("runc"), "read the program of the image")
}

func TestAnnounce_OnlyNodeHasNoTaint(t *testing.T) {
	for _, only := range []bool{true, false} {
		client := fake.NewClientset()
		require.NoError(t, Announce(t.Context(), client, only))
		node, err := client.CoreV1().Nodes().Get(t.Context(), instance.RealNode, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, only, len(node.Spec.Taints) == 0)
	}
}

func TestLoad_ImportsIntoRunningNode(t *testing.T) {
	folder := t.TempDir()
	require.ErrorContains(t, Load(instance.Process{}, deb.Unpacked{folder}, "image.tar"), "program ctr is in none of")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "usr", "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "usr", "bin", "ctr"), []byte("#!/bin/sh\necho \"$@\" >"+folder+"/called\n"), 0o755))
	require.ErrorContains(t, Load(instance.Process{PID: os.Getpid()}, deb.Unpacked{folder}, "image.tar"), "does not run", "another process has its number now")
	self, err := instance.ProcessOf(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, Load(self, deb.Unpacked{folder}, "image.tar"))
	called, err := os.ReadFile(filepath.Join(folder, "called"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("--address=/proc/%d/root/run/containerd.sock --namespace=k8s.io images import --snapshotter=native image.tar\n", self.PID), string(called))
}

func TestMain_RejectsHostMountNamespace(t *testing.T) {
	require.Equal(t, 2, Main([]string{"real-node", "--dir=" + t.TempDir()}))
	require.Equal(t, 2, Main([]string{"real-node", "--nonsense"}))
}

func TestReaper_ReportsExitOfEachProcess(t *testing.T) {
	if os.Getenv("LOADLINE_REAPER") == "" {
		// The reaper collects all children of its process, so it gets its own process.
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "LOADLINE_REAPER=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	r := newReaper()
	require.NoError(t, r.run(exec.Command("true")))
	require.ErrorContains(t, r.run(exec.Command("sh", "-c", "exit 3")), "exit status 3")
	long := exec.Command("sleep", "60")
	ended, err := r.start(long)
	require.NoError(t, err)
	require.NoError(t, long.Process.Kill())
	require.Equal(t, "killed by signal killed", describe(<-ended))
	_, err = r.start(exec.Command("/nowhere"))
	require.ErrorContains(t, err, "start /nowhere")
}

func TestTry_SucceedsWhenPodRuns(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		action.(kubetesting.CreateAction).GetObject().(*corev1.Pod).Status.Phase = corev1.PodRunning
		return false, nil, nil
	})
	require.NoError(t, Try(t.Context(), client))
	left, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Items, "the trial is over")
}

func TestTry_ReportsKubeletEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Type: "Warning", Message: "no such file: runc",
			InvolvedObject: corev1.ObjectReference{Name: "real-node-trial"},
		})
		began := time.Now()
		err := Try(t.Context(), client)
		require.ErrorContains(t, err, "no such file: runc")
		require.InDelta(t, trialTime.Seconds(), time.Since(began).Seconds(), 1)
	})
}
