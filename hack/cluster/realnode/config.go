package realnode

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/network"
)

type config struct {
	folder  instance.Folder // of the instance
	kubelet string          // program
	burn    string          // program for the image
	runtime deb.Unpacked
	group   string // control group for the pods, in kubelet format
	port    int    // of the kubelet

	podNetwork bool // from the options of the instance
}

func (c *config) addFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&c.folder), "dir", "", "folder of the instance")
	fs.StringVar(&c.kubelet, "kubelet", "", "the kubelet's program")
	fs.StringVar(&c.burn, "burn", "", "the program of the image")
	fs.StringArrayVar((*[]string)(&c.runtime), "packages", nil, "folder of an unpacked package")
	fs.StringVar(&c.group, "group", "", "control group for the pods")
	fs.IntVar(&c.port, "port", 0, "port of the kubelet")
}

// Programs that build.sh --real-node builds next to loadline-cluster.
const (
	kubeletProgram = "loadline-kubelet"
	burnProgram    = "loadline-burn"
)

// CheckPrograms returns an error if a program is missing in the folder.
func CheckPrograms(folder string) error {
	for _, name := range []string{kubeletProgram, burnProgram} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("program of the real node: %w; make it with hack/cluster/build.sh --real-node", err)
		}
	}
	return nil
}

// Flags returns the command line of the node's process.
func Flags(folder instance.Folder, programs string, runtime deb.Unpacked, group string, port int) []string {
	flags := []string{
		"--dir=" + string(folder), "--kubelet=" + filepath.Join(programs, kubeletProgram), "--burn=" + filepath.Join(programs, burnProgram),
		"--group=" + group, fmt.Sprintf("--port=%d", port),
	}
	for _, unpacked := range runtime {
		flags = append(flags, "--packages="+unpacked)
	}
	return flags
}

func (c config) path(elements ...string) string {
	return c.folder.Path(append([]string{"real-node"}, elements...)...)
}

// socket is the address of containerd in the node's own /run.
const socket = "/run/containerd.sock"

// The plugin of pods without a network is called under two names: its own, and the name that
// containerd uses for the loopback device.
//
//go:embed files/network
var networkPlugin []byte

const (
	serviceDNS   = "192.0.2.1" // reserved for documentation
	networkName  = "none"
	loopbackName = "loopback"
	// plugin connects each pod to the node with a pair of devices, and assigns an address.
	plugin = "ptp"
)

// networkConfig configures the CNI plugins.
func (c config) networkConfig() []byte {
	if !c.podNetwork {
		return []byte(`{"cniVersion": "0.3.1", "name": "none", "plugins": [{"type": "none"}]}` + "\n")
	}
	return fmt.Appendf(nil, `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": %q, "ipMasq": false,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, plugin, network.Pods)
}

func (c config) networkPlugins() (string, error) {
	if !c.podNetwork {
		return c.path("network", "bin"), nil
	}
	path, err := c.runtime.Program(plugin)
	return filepath.Dir(path), err
}

// containerdConfig keeps all state in the instance's folder or in the node's own /run.
func (c config) containerdConfig(runc, plugins string) string {
	return fmt.Sprintf(`version = 2
root = %[1]q
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = %[2]q
[plugins."io.containerd.internal.v1.opt"]
  path = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  netns_mounts_under_state_dir = true
  # The process may lack the right to lower the score; containers would fail then.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %[5]q
  conf_dir = %[6]q
[plugins."io.containerd.grpc.v1.cri".containerd]
  # Copies instead of overlays: works on any file system, and the image is small.
  snapshotter = "native"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = %[7]q
  SystemdCgroup = false
`, c.path("containerd"), socket, c.path("opt"), Image, plugins, c.path("network", "conf"), runc)
}

// kubeletConfig listens only on the loopback address.
func (c config) kubeletConfig() ([]byte, error) {
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": instance.Loopback, "port": c.port, "healthzPort": 0, "readOnlyPort": 0,
		"tlsCertFile": c.folder.Path("pki", "server.crt"), "tlsPrivateKeyFile": c.folder.Path("pki", "server.key"),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": c.folder.Path("pki", "ca.crt")},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix://" + socket,
		"podLogsDir":               c.path("pod-logs"), "volumePluginDir": c.path("volume-plugins"),
		"cgroupDriver": "cgroupfs", "cgroupRoot": c.group, "failCgroupV1": false, "enforceNodeAllocatable": []string{"pods"},
		"failSwapOn": false, "makeIPTablesUtilChains": false, "localStorageCapacityIsolation": false, "resolvConf": "",
		"clusterDNS": []string{serviceDNS}, // no server, but a valid address for pods
		// Ignore the disk of the machine.
		"evictionHard":                map[string]string{"memory.available": "100Mi"},
		"imageGCHighThresholdPercent": 100,
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	return data, nil
}

// kubeletFlags returns flags without a field in the configuration file. The existing node object
// keeps its loopback address only with an external cloud provider.
func (c config) kubeletFlags() []string {
	return []string{
		"--config=" + c.path("kubelet.yaml"), "--kubeconfig=" + c.folder.KubeconfigOf(instance.RealNodeUser),
		"--root-dir=" + c.path("kubelet"), "--hostname-override=" + instance.RealNode,
		"--cloud-provider=external", "--housekeeping-interval=5s",
	}
}

func (c config) write(runc string) error {
	kubelet, err := c.kubeletConfig()
	if err != nil {
		return err
	}
	plugins, err := c.networkPlugins()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(c.burn)
	if err != nil {
		return fmt.Errorf("read the program of the image: %w", err)
	}
	image, err := imageArchive(program)
	if err != nil {
		return err
	}
	for path, f := range map[string]file{
		c.path("containerd.toml"):                  {mode: 0o644, data: []byte(c.containerdConfig(runc, plugins))},
		c.path("kubelet.yaml"):                     {mode: 0o644, data: kubelet},
		c.path("image.tar"):                        {mode: 0o644, data: image},
		c.path("network", "conf", "pods.conflist"): {mode: 0o644, data: c.networkConfig()},
		c.path("network", "bin", networkName):      {mode: 0o755, data: networkPlugin},
		c.path("network", "bin", loopbackName):     {mode: 0o755, data: networkPlugin},
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the node's folder: %w", err)
		}
		if err := os.WriteFile(path, f.data, os.FileMode(f.mode)); err != nil {
			return fmt.Errorf("write the node's files: %w", err)
		}
	}
	return nil
}
