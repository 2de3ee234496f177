// Package harness runs Loadline on a local control plane for end-to-end tests and the demo.
//
// Start starts a Cluster and applies deploy/ as a user would. The programs then run as processes of
// this machine, each with a token of its service account from deploy/, so that missing permissions
// show as in a pod. A Daemon can be stopped, killed and restarted.
//
// The harness asserts nothing. Tests and the demo do.
package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Daemon is a program that runs as a process under its own service account.
type Daemon struct {
	Name    string
	Address string // of metrics and health, host:port
	Log     string // file with its output, appended over restarts

	MemoryLimit int64 // bytes, of a shipped program

	group  string // cgroup file that takes processes, empty: none
	env    []string
	binary string
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Daemon prepares the program bin/<name> with further arguments. It gets a token of the service
// account vpa-<name> and free loopback ports. Several daemons of one program need different labels,
// which name their files.
func (c *Cluster) Daemon(ctx context.Context, name, label string, args ...string) (*Daemon, error) {
	kubeconfig, err := c.Credentials(ctx, name, label)
	if err != nil {
		return nil, err
	}
	return c.daemon(filepath.Join(c.Root, "bin", name), label, append([]string{"--kubeconfig=" + kubeconfig}, args...))
}

// Foreign prepares a program that is not part of Loadline, for comparison. It gets its own service
// account, vpa-<label>, with all permissions.
func (c *Cluster) Foreign(ctx context.Context, binary, label string, args ...string) (*Daemon, error) {
	account := metav1.ObjectMeta{Namespace: SystemNamespace, Name: "vpa-" + label}
	if _, err := c.Kube.CoreV1().ServiceAccounts(SystemNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: account}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create service account %s: %w", account.Name, err)
	}
	if _, err := c.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("let %s do anything: %w", account.Name, err)
	}
	kubeconfig, err := c.Credentials(ctx, label, label)
	if err != nil {
		return nil, err
	}
	return c.daemon(binary, label, append([]string{"--kubeconfig=" + kubeconfig}, args...))
}

func (c *Cluster) daemon(binary, label string, args []string) (*Daemon, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		Name:    filepath.Base(binary),
		Address: address,
		Log:     filepath.Join(c.Dir, "logs", label+".log"),
		binary:  binary,
		args:    append(args, "--address="+address),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.daemons = append(c.daemons, d)
	return d, nil
}

// Credentials writes a kubeconfig with a token of the service account of a program, and returns its
// path.
func (c *Cluster) Credentials(ctx context.Context, name, label string) (string, error) {
	hours := int64(4 * 3600)
	account := "vpa-" + name
	token, err := c.Kube.CoreV1().ServiceAccounts(SystemNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token for service account %s: %w", account, err)
	}
	path := filepath.Join(c.Dir, label+".kubeconfig")
	return path, writeKubeconfig(path, clientcmdapi.AuthInfo{Token: token.Status.Token},
		clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthority: c.Config.CAFile, CertificateAuthorityData: c.Config.CAData})
}

// WriteKubeconfig writes a kubeconfig for a server, without credentials.
func WriteKubeconfig(path, server string) error {
	return writeKubeconfig(path, clientcmdapi.AuthInfo{}, clientcmdapi.Cluster{Server: server})
}

func writeKubeconfig(path string, user clientcmdapi.AuthInfo, server clientcmdapi.Cluster) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &server
	config.AuthInfos["local"] = &user
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "local"}
	config.CurrentContext = "local"
	return clientcmd.WriteToFile(*config, path)
}

// Port range of FreeAddress. Systems use higher ports for outgoing connections, so that a free one
// may be taken when a program starts or restarts.
const (
	minPort = 20000
	maxPort = 32000
)

// usedPorts are the ports that FreeAddress has returned. It never returns them again.
var usedPorts sync.Map

// FreeAddress returns a loopback address with an unused port.
func FreeAddress() (string, error) {
	var err error
	for range 100 {
		port := minPort + rand.IntN(maxPort-minPort)
		if _, before := usedPorts.LoadOrStore(port, true); before {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			return fmt.Sprintf("127.0.0.1:%d", port), l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}

// Start runs the program and waits until it reports healthy.
func (d *Daemon) Start(ctx context.Context) error {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(d.binary, d.args...)
	if d.group != "" { // include the memory of the start
		d.cmd = exec.Command("sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, d.group, d.binary}, d.args...)...)
	}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = append(append(os.Environ(), "NAMESPACE="+SystemNamespace), d.env...)
	// The kernel kills the programs of a killed test, and ctrl-C reaches only the test.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.binary, err)
	}
	d.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(d.cmd, d.exited)
	return d.awaitHealth(ctx)
}

func (d *Daemon) awaitHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		if response, err := http.Get("http://" + d.Address + "/health-check"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy after a minute; its log is %s", d.binary, d.Log)
		case <-d.exited:
			return fmt.Errorf("%s ended at once; its log is %s", d.binary, d.Log)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// PID is the process ID of the last Start.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Running reports whether the process is running.
func (d *Daemon) Running() bool {
	if d.exited == nil {
		return false
	}
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// Stop ends the program with SIGTERM, or with SIGKILL after 20 seconds, and waits for it.
func (d *Daemon) Stop() { d.end(syscall.SIGTERM) }

// Kill ends the program with SIGKILL.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL) }

func (d *Daemon) end(signal syscall.Signal) {
	if !d.Running() {
		return
	}
	_ = d.cmd.Process.Signal(signal)
	select {
	case <-d.exited:
	case <-time.After(20 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.exited
	}
}
