package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const onePod = `{apiVersion: v1, kind: Pod, metadata: {name: busy}, spec: {nodeName: ` + realNode + `, containers: [
  {name: app, image: "` + image + `", imagePullPolicy: Never, args: ["-cpu=10m"]}]}}`

// A real node must not change the machine, not even if its supervisor is killed. Only empty cgroups
// may remain until the next command.
func testNodeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	program, dir := cluster.Binary, filepath.Join(t.TempDir(), "other")
	call := func(input string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return string(out)
	}
	before := machineState(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = exec.CommandContext(ctx, program, "down", "--dir", dir).Run() // if the test fails halfway
	})
	call("", "up", "--dir", dir, "--nodes=1", "--real-node")
	call(onePod, "kubectl", "--dir", dir, "apply", "-f", "-")
	call("", "kubectl", "--dir", dir, "wait", "--for=condition=Ready", "--timeout=60s", "pod/busy")
	supervisor, group := processOf(t, filepath.Join(dir, "pids", "supervisor.pid"))
	node, _ := processOf(t, filepath.Join(dir, "pids", "real-node.pid"))
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", node))
	require.NoError(t, err)
	require.NotEmpty(t, processes(t, namespace, group), "the check below would prove nothing")
	require.Equal(t, before, machineState(t), "while the node runs")

	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	eventually(t, 20*time.Second, "all processes of the node are gone", func() error {
		if left := processes(t, namespace, group); len(left) > 0 {
			return fmt.Errorf("%v are there", left)
		}
		return nil
	})
	require.Equal(t, before, machineState(t), "after the supervisor was killed")
	require.NotEmpty(t, groups(t, group), "groups of a killed supervisor stay until the next command")
	call("", "down", "--dir", dir)
	require.Empty(t, groups(t, group))
	require.NoDirExists(t, dir)
}

func processOf(t *testing.T, file string) (pid int, group string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var start uint64
	_, err = fmt.Sscanf(string(data), "%d %d", &pid, &start)
	require.NoError(t, err)
	return pid, fmt.Sprintf("loadline-node-%d-%d", pid, start)
}

func processes(t *testing.T, namespace, group string) (found []string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, folder := range folders {
		// Both fail for a process that has exited meanwhile.
		mounts, _ := os.Readlink(filepath.Join(folder, "ns", "mnt"))
		member, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		if mounts == namespace || strings.Contains(string(member), group) {
			found = append(found, filepath.Base(folder))
		}
	}
	return found
}

func groups(t *testing.T, name string) (found []string) {
	t.Helper()
	for _, level := range []string{"", "*"} {
		paths, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", level, name))
		require.NoError(t, err)
		found = append(found, paths...)
	}
	return found
}

// machineState returns everything that a node could have changed: kernel parameters that kubelets
// set, network devices, folders of containerd and kubelets, and mounts.
func machineState(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"} {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		require.NoError(t, err)
		state[name] = string(data)
	}
	devices, err := net.Interfaces()
	require.NoError(t, err)
	for _, device := range devices {
		state["device "+device.Name] = "there"
	}
	for _, folder := range []string{"/run/containerd", "/run/netns", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/opt/containerd", "/etc/cni", "/usr/libexec/kubernetes"} {
		_, err := os.Stat(folder)
		state[folder] = fmt.Sprint(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "kubelet") || strings.Contains(line, "containerd") || strings.Contains(line, "real-node") {
			state["mount "+line] = "there"
		}
	}
	return state
}
