// Package process is the boundary between a program and its machine.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"loadline.dev/loadline/pkg/flags"
)

// Environment is the machine that a program runs on. Tests replace parts of OS.
type Environment interface {
	// RESTConfig returns the API server configuration. The user agent begins with agent.
	RESTConfig(kube flags.Kube, agent string) (*rest.Config, error)
	Listen(network, address string) (net.Listener, error)
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
	Hostname() (string, error)
	Stdout() io.Writer
}

// OS is the operating system.
type OS struct{}

// RESTConfig reads the kubeconfig file of the flags, or the service account of the pod.
func (OS) RESTConfig(kube flags.Kube, agent string) (*rest.Config, error) {
	config, err := load(kube.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = float32(kube.QPS), int(kube.Burst)
	config.UserAgent = agent + " " + rest.DefaultKubernetesUserAgent()
	return config, nil
}

func load(path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New(`--kubeconfig="": not running in a pod: set the path of a kubeconfig file`)
		}
		if err != nil {
			return nil, fmt.Errorf("read the service account of the pod: %w", err)
		}
		return config, nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil, flags.Problem("kubeconfig", path, "must be a readable kubeconfig file: "+err.Error())
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, flags.Problem("kubeconfig", path, "must be a valid kubeconfig file: "+err.Error())
	}
	return config, nil
}

// Listen opens a port.
func (OS) Listen(network, address string) (net.Listener, error) { return net.Listen(network, address) }

// Dial connects within 30 s.
func (OS) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
}

// LookupHost resolves a host name.
func (OS) LookupHost(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// Hostname returns the name of the machine, or of the pod in a cluster.
func (OS) Hostname() (string, error) { return os.Hostname() }

// Stdout returns the standard output.
func (OS) Stdout() io.Writer { return os.Stdout }

// Transport returns the default HTTP transport with connections of the environment.
func Transport(env Environment) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = env.Dial
	return transport
}
