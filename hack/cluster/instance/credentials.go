package instance

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"loadline.dev/loadline/hack/cluster/pki"
)

// ServiceIP is the first address of the service range, which belongs to the API server.
const (
	ServiceRange = "10.96.0.0/16"
	ServiceIP    = "10.96.0.1"
)

// The real node, the user of its kubelet, and the taint that its pods must tolerate.
const (
	RealNode      = "real-1"
	RealNodeUser  = "system:node:" + RealNode
	RealNodeTaint = "sim.loadline.dev/real"
)

// ProxyUser is the user of kube-proxy.
const ProxyUser = "system:kube-proxy"

// FrontProxy is the user of the API server at aggregated API servers.
const FrontProxy = "front-proxy-client"

const (
	admin = "kubernetes-admin"
	// masters is the group with all permissions.
	masters = "system:masters"
)

// users returns the clients of the API server and their groups. The controllers, the scheduler,
// kube-proxy and the real node have only their default roles.
func users() map[string][]string {
	return map[string][]string{
		admin:                            {masters},
		"system:kube-controller-manager": nil,
		"system:kube-scheduler":          nil,
		ProxyUser:                        nil,
		"kwok":                           {masters},
		"player":                         {masters},
		"metrics-server":                 {masters},
		RealNodeUser:                     {"system:nodes"},
	}
}

// KubeconfigOf returns the path of a user's kubeconfig.
func (f Folder) KubeconfigOf(user string) string {
	if user == admin {
		return f.Kubeconfig()
	}
	return f.Path("kubeconfigs", user)
}

// WriteKubeconfigs writes a self-contained kubeconfig for each user.
func (f Folder) WriteKubeconfigs(authority *pki.Authority, name string, port int, now time.Time) error {
	if err := os.MkdirAll(f.Path("kubeconfigs"), 0o700); err != nil {
		return fmt.Errorf("write kubeconfigs: %w", err)
	}
	for user, groups := range users() {
		pair, err := authority.Client(user, now, groups...)
		if err != nil {
			return err
		}
		config := api.NewConfig()
		config.Clusters[name] = &api.Cluster{
			Server:                   fmt.Sprintf("https://%s:%d", Loopback, port),
			CertificateAuthorityData: authority.PEM,
		}
		config.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
		config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user}
		config.CurrentContext = name
		if err := clientcmd.WriteToFile(*config, f.KubeconfigOf(user)); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

// servingNames returns the names of the API server inside and outside, and of metrics-server.
func servingNames() []string {
	return []string{"localhost", Loopback, "kubernetes", "kubernetes.default", "kubernetes.default.svc", ServiceIP, "*.kube-system.svc"}
}

// WritePKI writes certificates and keys of all components.
func (f Folder) WritePKI(authority *pki.Authority, now time.Time) error {
	server, err := authority.Server(now, servingNames()...)
	if err != nil {
		return err
	}
	proxy, err := authority.Client(FrontProxy, now)
	if err != nil {
		return err
	}
	toKubelet, err := authority.Client("kube-apiserver-kubelet-client", now, masters)
	if err != nil {
		return err
	}
	_, accounts, err := pki.NewKey()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Path("pki"), 0o700); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	for name, data := range map[string][]byte{
		"ca.crt": authority.PEM, "server.crt": server.Cert, "server.key": server.Key,
		"front-proxy.crt": proxy.Cert, "front-proxy.key": proxy.Key, "service-accounts.key": accounts,
		"kubelet-client.crt": toKubelet.Cert, "kubelet-client.key": toKubelet.Key,
	} {
		if err := os.WriteFile(f.Path("pki", name), data, 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return nil
}
