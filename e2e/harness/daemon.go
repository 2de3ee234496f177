package harness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Daemon is one program of Loadline, run as a process under its own service
// account.
type Daemon struct {
	Name    string
	Address string // of metrics and health, host:port
	Log     string // the file that holds what it prints; grows over restarts

	binary string
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Daemon prepares the program bin/<name> with further arguments. It gets a
// token of the service account vpa-<name> and free loopback ports. Several
// daemons of one program need different labels, which name their files.
func (c *Cluster) Daemon(ctx context.Context, name, label string, args ...string) (*Daemon, error) {
	kubeconfig, err := c.credentials(ctx, name, label)
	if err != nil {
		return nil, err
	}
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		Name:    name,
		Address: address,
		Log:     filepath.Join(c.Dir, "logs", label+".log"),
		binary:  filepath.Join(c.Root, "bin", name),
		args:    append([]string{"--kubeconfig=" + kubeconfig, "--address=" + address}, args...),
	}
	c.daemons = append(c.daemons, d)
	return d, nil
}

// credentials writes a kubeconfig with a token of the program's account.
func (c *Cluster) credentials(ctx context.Context, name, label string) (string, error) {
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

// FreeAddress returns a loopback address with a port that was free just now.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Start runs the program and waits until it reports that it is healthy.
func (d *Daemon) Start(ctx context.Context) error {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(d.binary, d.args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = append(os.Environ(), "NAMESPACE="+SystemNamespace)
	// A test that is killed takes its programs with it, and ctrl-C reaches only the test.
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

// Running tells whether the process is there.
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

// Stop asks the program to end and waits for it; after 20 seconds it is killed.
func (d *Daemon) Stop() { d.end(syscall.SIGTERM) }

// Kill ends the program as kill -9 does.
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
