package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	vpaclient "loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// SystemNamespace is the namespace of the programs in deploy/.
const SystemNamespace = "kube-system"

// Options configure a Cluster.
type Options struct {
	Binary string    // program of hack/cluster, see its build.sh
	Root   string    // checkout with deploy/ and bin/
	Dir    string    // state and logs, created by Start, removed by Down
	Nodes  int       // simulated nodes
	Args   []string  // more arguments of the program
	Empty  bool      // do not apply deploy/
	Out    io.Writer // progress output
}

// Cluster is a running local control plane with the objects of deploy/.
type Cluster struct {
	Options
	Config *rest.Config // of an administrator
	Kube   kubernetes.Interface
	VPA    vpaclient.Interface
	Usage  metricsclient.Interface

	lifeline *exec.Cmd     // holds the control plane
	release  io.Closer     // ends lifeline
	copied   chan struct{} // closed when all output of lifeline is copied
	down     sync.Once
	downErr  error
	mu       sync.Mutex // guards daemons, which parallel tests add
	daemons  []*Daemon
}

// Start starts a control plane and, unless Empty is set, applies deploy/ with strict field
// validation. It then scales the Deployments to zero: their pods would only be simulated, and the
// programs run as processes instead.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o, copied: make(chan struct{})}
	if err := c.launch(ctx); err != nil {
		return nil, fmt.Errorf("start the local control plane: %w", err)
	}
	if err := c.connect(); err != nil {
		return nil, errors.Join(err, c.Down())
	}
	if o.Empty {
		return c, nil
	}
	applied, err := c.KubectlOutput(ctx, "apply", "--validate=strict", "-k", filepath.Join(o.Root, "deploy"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("apply deploy/: %w", err), c.Down())
	}
	fmt.Fprintf(o.Out, "kubectl apply --validate=strict -k deploy: %d objects\n", strings.Count(applied, "\n"))
	if _, err := c.KubectlOutput(ctx, "-n", SystemNamespace, "scale", "--replicas=0", "deployment/vpa-recommender", "deployment/vpa-updater", "deployment/vpa-admission-controller"); err != nil {
		return nil, errors.Join(fmt.Errorf("scale the simulated programs to nothing: %w", err), c.Down())
	}
	return c, nil
}

// readyLine is printed by the command that the control plane runs when it is ready.
const readyLine = "the control plane is ready"

// launch starts the control plane for the lifetime of this process. The control plane runs a
// command that waits for the end of its input. Down closes the input, and the kernel closes it if
// this process is killed.
func (c *Cluster) launch(ctx context.Context) error {
	args := append([]string{"run", "--dir", c.Dir, "--nodes", fmt.Sprint(c.Nodes), "--audit",
		"--traces", filepath.Join(c.Root, "testdata", "traces")}, c.Args...)
	c.lifeline = exec.Command(c.Binary, append(args, "--", "sh", "-c", "echo "+readyLine+"; exec cat")...)
	// Ctrl-C reaches only this process, which stops everything in order.
	c.lifeline.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.lifeline.Stderr = c.Out
	input, err := c.lifeline.StdinPipe()
	if err != nil {
		return err
	}
	output, err := c.lifeline.StdoutPipe()
	if err != nil {
		return err
	}
	c.release = input
	if err := c.lifeline.Start(); err != nil {
		return err
	}
	interrupted := context.AfterFunc(ctx, func() { _ = c.lifeline.Process.Signal(syscall.SIGTERM) })
	defer interrupted()
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if lines.Text() == readyLine {
			go func() {
				defer close(c.copied)
				_, _ = io.Copy(c.Out, output)
			}()
			return ctx.Err()
		}
		fmt.Fprintln(c.Out, lines.Text())
	}
	return errors.Join(ctx.Err(), c.lifeline.Wait())
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
	if c.VPA, err = vpaclient.NewForConfig(c.Config); err != nil {
		return err
	}
	c.Usage, err = metricsclient.NewForConfig(c.Config)
	return err
}

// Kubectl runs a kubectl command as the administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) error {
	return c.command(ctx, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig()}, args...)...)
}

// KubectlOutput runs a kubectl command as the administrator and returns its output.
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

// Down stops the programs and the control plane and removes their state. It also works after the
// context of Start has ended. A second call does nothing.
func (c *Cluster) Down() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.daemons {
		d.Stop()
	}
	c.down.Do(func() {
		_ = c.release.Close()
		<-c.copied // Wait would lose the last lines
		if err := c.lifeline.Wait(); err != nil {
			c.downErr = fmt.Errorf("stop the local control plane in %s: %w", c.Dir, err)
		}
	})
	return c.downErr
}
