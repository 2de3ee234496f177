package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	vpaclient "loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// SystemNamespace is where deploy/ puts the programs.
const SystemNamespace = "kube-system"

// Options say how to start a Cluster.
type Options struct {
	Binary string    // the program of hack/cluster; see its build.sh
	Root   string    // the checkout: deploy/ and bin/ lie there
	Dir    string    // state and logs; created, and removed by Down
	Nodes  int       // simulated nodes
	Out    io.Writer // progress for people
}

// Cluster is a running local control plane with Loadline's objects applied.
type Cluster struct {
	Options
	Config *rest.Config // of an administrator
	Kube   kubernetes.Interface
	VPA    vpaclient.Interface

	daemons []*Daemon
}

// Start brings a control plane up and applies deploy/ to it with strict field
// validation. The Deployments in there are then scaled to nothing: their pods
// would only be simulated, and the programs run as processes instead.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o}
	if err := c.command(ctx, "up", "--dir", o.Dir, "--nodes", fmt.Sprint(o.Nodes), "--audit", "--traces", filepath.Join(o.Root, "testdata", "traces")); err != nil {
		return nil, fmt.Errorf("start the local control plane: %w", err)
	}
	if err := c.connect(); err != nil {
		return nil, errors.Join(err, c.Down())
	}
	if err := c.Kubectl(ctx, "apply", "--validate=strict", "-k", filepath.Join(o.Root, "deploy")); err != nil {
		return nil, errors.Join(fmt.Errorf("apply deploy/: %w", err), c.Down())
	}
	if err := c.Kubectl(ctx, "-n", SystemNamespace, "scale", "--replicas=0", "deployment/vpa-recommender", "deployment/vpa-updater", "deployment/vpa-admission-controller"); err != nil {
		return nil, errors.Join(fmt.Errorf("scale the simulated programs to nothing: %w", err), c.Down())
	}
	return c, nil
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

func (c *Cluster) connect() (err error) {
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return fmt.Errorf("read the kubeconfig of the local control plane: %w", err)
	}
	c.Config.QPS, c.Config.Burst = 200, 400
	if c.Kube, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	c.VPA, err = vpaclient.NewForConfig(c.Config)
	return err
}

// Kubectl runs a kubectl command as the administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) error {
	return c.command(ctx, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig()}, args...)...)
}

// KubectlOutput runs a kubectl command as the administrator and returns what
// it prints.
func (c *Cluster) KubectlOutput(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Binary, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), err
}

func (c *Cluster) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Binary, args...)
	cmd.Stdout, cmd.Stderr = c.Out, c.Out
	return cmd.Run()
}

// Down stops the programs and the control plane and removes their state. It
// works after the context of Start has ended, too.
func (c *Cluster) Down() error {
	for _, d := range c.daemons {
		d.Stop()
	}
	if err := c.command(context.Background(), "down", "--dir", c.Dir); err != nil {
		return fmt.Errorf("stop the local control plane in %s: %w", c.Dir, err)
	}
	return os.RemoveAll(c.Dir)
}
