package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/network"
)

const podRange = "10.244.0.0/16"

// component is one server: first program argument, flags, new namespaces and additional environment
// variables.
type component struct {
	name        string
	flags       []string
	namespaces  uintptr
	environment []string
}

// portNames excludes the controllers and the scheduler, which do not listen.
func portNames() []string {
	return []string{"etcd", "etcd-peer", "kube-apiserver", "kwok", "player", "metrics-server", RealNode}
}

// plan returns the components of one instance.
type plan struct {
	folder  instance.Folder
	options instance.Options
	ports   map[string]int
}

func (p plan) port(name string) string { return strconv.Itoa(p.ports[name]) }

func (p plan) address(name string) string { return instance.Loopback + ":" + p.port(name) }

func (p plan) pki(name string) string { return p.folder.Path("pki", name) }

func (p plan) serving() []string {
	return []string{"--tls-cert-file=" + p.pki("server.crt"), "--tls-private-key-file=" + p.pki("server.key")}
}

func (p plan) etcd() component {
	client, peer := "http://"+p.address("etcd"), "http://"+p.address("etcd-peer")
	return component{name: "etcd", flags: []string{
		"--data-dir=" + p.folder.Path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		// The data is deleted with the instance, so it need not survive a power failure.
		"--unsafe-no-fsync", "--quota-backend-bytes=4294967296", "--log-level=warn",
	}}
}

func (p plan) apiServer() component {
	flags := p.serving()
	if p.options.Audit {
		flags = append(flags, "--audit-policy-file="+p.folder.Path(instance.AuditPolicyFile), "--audit-log-path="+p.folder.Path(instance.LogsDir, "audit.log"))
	}
	if p.options.PodNetwork {
		// Pods connect to the node's address through its Service.
		flags = append(flags, "--bind-address=0.0.0.0")
	} else {
		flags = append(flags, "--bind-address="+instance.Loopback, "--endpoint-reconciler-type=none")
	}
	return component{name: "kube-apiserver", flags: append(flags,
		"--etcd-servers=http://"+p.address("etcd"),
		"--secure-port="+p.port("kube-apiserver"),
		"--advertise-address="+network.Address, // must not be instance.Loopback, even if it is unused
		"--client-ca-file="+p.pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.pki("service-accounts.key"),
		"--service-account-signing-key-file="+p.pki("service-accounts.key"),
		"--service-cluster-ip-range="+instance.ServiceRange,
		"--authorization-mode=Node,RBAC",
		"--requestheader-client-ca-file="+p.pki("ca.crt"), "--requestheader-allowed-names="+instance.FrontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+p.pki("front-proxy.crt"), "--proxy-client-key-file="+p.pki("front-proxy.key"),
		// For the logs of the real node's pods.
		"--kubelet-client-certificate="+p.pki("kubelet-client.crt"), "--kubelet-client-key="+p.pki("kubelet-client.key"),
		"--kubelet-certificate-authority="+p.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		"--allow-privileged",
	)}
}

func (p plan) controllers() component {
	config := p.folder.KubeconfigOf("system:kube-controller-manager")
	return component{name: "kube-controller-manager", flags: []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file=" + p.pki("service-accounts.key"), "--root-ca-file=" + p.pki("ca.crt"),
		"--use-service-account-credentials", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--controllers=*,-nodeipam,-node-route-controller,-cloud-node-lifecycle-controller,-service-lb-controller",
	}}
}

func (p plan) scheduler() component {
	config := p.folder.KubeconfigOf("system:kube-scheduler")
	return component{name: "kube-scheduler", flags: []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000",
	}}
}

// kubeProxy serves the Services of a pod network with nft rules. Connection tracking settings are
// unchanged.
func (p plan) kubeProxy(nft string, packages deb.Unpacked) component {
	return component{
		name: "kube-proxy",
		flags: []string{
			"--kubeconfig=" + p.folder.KubeconfigOf(instance.ProxyUser), "--hostname-override=" + instance.RealNode,
			"--proxy-mode=nftables", "--cluster-cidr=" + network.Pods,
			"--healthz-bind-address=", "--metrics-bind-address=",
			"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		},
		environment: []string{
			"PATH=" + filepath.Dir(nft) + ":" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + strings.Join(packages.Libraries(), ":"),
		},
	}
}

// kwok simulates nodes and pods. Nodes announce the player's port, so that metrics-server scrapes
// the player.
func (p plan) kwok() component {
	return component{name: "kwok", flags: append(p.serving(),
		"--kubeconfig="+p.folder.KubeconfigOf("kwok"),
		"--manage-nodes-with-annotation-selector="+simulated+"=fake", "--node-ip="+instance.Loopback, "--node-port="+p.port("player"),
		"--server-address="+p.address("kwok"), "--cidr="+podRange,
		"--node-lease-duration-seconds=40", "--enable-crds=Stage",
	)}
}

func (p plan) player() component {
	return component{name: "player", flags: append(p.serving(),
		"--kubeconfig="+p.folder.KubeconfigOf("player"), "--address="+p.address("player"),
		"--leave-alone="+instance.RealNode, "--traces="+p.options.Traces, fmt.Sprintf("--speed=%g", p.options.Speed),
	)}
}

// metricsServer sets the request timeout to half of the scrape interval, because it must be
// shorter.
func (p plan) metricsServer() component {
	config := p.folder.KubeconfigOf("metrics-server")
	return component{name: "metrics-server", flags: append(p.serving(),
		"--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
		"--bind-address="+instance.Loopback, "--secure-port="+p.port("metrics-server"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-use-node-status-port",
		"--kubelet-certificate-authority="+p.pki("ca.crt"),
		"--metric-resolution="+p.options.Scrape.String(),
		"--kubelet-request-timeout="+(p.options.Scrape/2).Round(time.Second).String(),
	)}
}
