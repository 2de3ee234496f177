package flags

import (
	"errors"
	"math"
	"strings"

	"github.com/spf13/pflag"
)

// Kube configures the connection to the API server and selects the namespaces.
type Kube struct {
	Kubeconfig string  // path, empty for the service account of the pod
	QPS        float64 // requests per second, negative for no limit
	Burst      float64 // burst of requests above the rate, fractions are dropped

	Namespaces
}

// Namespaces selects namespaces. The zero value selects all.
type Namespaces struct {
	Namespace         string // the only namespace, empty for all
	IgnoredNamespaces string // comma-separated namespaces to ignore
}

// DefaultKube returns in-cluster access with 50 requests per second, burst 100, all namespaces.
func DefaultKube() Kube { return Kube{QPS: 50, Burst: 100} }

// AddFlags binds the group to fs.
func (k *Kube) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&k.Kubeconfig, "kubeconfig", k.Kubeconfig, "Path of a kubeconfig file. Empty: use the service account of the pod.")
	fs.Float64Var(&k.QPS, "kube-api-qps", k.QPS, "Requests a second to the API server, for each kind of client. Negative: no limit.")
	fs.Float64Var(&k.Burst, "kube-api-burst", k.Burst, "Requests to the API server that may exceed the rate at once.")
	fs.StringVar(&k.Namespace, "vpa-object-namespace", k.Namespace, "Work on this namespace only. Empty: on all. Excludes --ignored-vpa-object-namespaces.")
	fs.StringVar(&k.IgnoredNamespaces, "ignored-vpa-object-namespaces", k.IgnoredNamespaces, "Comma-separated namespaces to ignore. Excludes --vpa-object-namespace.")
}

// Validate returns all problems of the group.
func (k *Kube) Validate() error {
	return errors.Join(
		Check(!math.IsNaN(k.QPS), "kube-api-qps", k.QPS, "must be a number"),
		Check(k.Burst >= 0 || k.QPS < 0, "kube-api-burst", k.Burst, "must be 0 or more while --kube-api-qps limits the rate"),
		Check(k.Namespace == "" || len(k.Ignored()) == 0, "vpa-object-namespace", k.Namespace,
			"excludes --ignored-vpa-object-namespaces="+k.IgnoredNamespaces+": give only one of the two"),
		Check(!strings.ContainsAny(k.Namespace, ", \t"), "vpa-object-namespace", k.Namespace, "must be the name of one namespace"),
	)
}

// Ignored returns the ignored namespaces.
func (n Namespaces) Ignored() []string { return List(n.IgnoredNamespaces) }

// Includes reports whether a namespace is selected.
func (n Namespaces) Includes(namespace string) bool {
	if n.Namespace != "" && n.Namespace != namespace {
		return false
	}
	for item := range strings.SplitSeq(n.IgnoredNamespaces, ",") {
		if item == namespace {
			return false
		}
	}
	return true
}

// Warnings returns a line for each valid setting with a probably unintended effect.
func (k *Kube) Warnings() []string {
	var lines []string
	for _, item := range k.Ignored() {
		if strings.TrimSpace(item) != item {
			lines = append(lines, Problem("ignored-vpa-object-namespaces", k.IgnoredNamespaces,
				"blanks belong to the names, so no namespace matches \""+item+"\": write the list without blanks").Error())
		}
	}
	return lines
}
