package main

import (
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
)

// clusterFlags say which cluster a command is about: the one that kubectl would use.
type clusterFlags struct {
	Kubeconfig, Context string
}

// AddFlags binds the group to fs.
func (f *clusterFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "File that says where the cluster is. Unset: as for kubectl.")
	fs.StringVar(&f.Context, "context", "", "Context of that file. Unset: the current one.")
}

// Connect returns clients as kubectl would have them, and the namespace: the given one, or if it
// is empty that of the context.
func (f *clusterFlags) Connect(given string) (connected *client.Clients, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	overrides.Context.Namespace = given
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if namespace, _, err = loading.Namespace(); err != nil {
		return nil, given, err
	}
	rest, err := loading.ClientConfig()
	if err != nil {
		return nil, namespace, err
	}
	rest.QPS, rest.Burst = float32(flags.DefaultKube().QPS), int(flags.DefaultKube().Burst)
	connected, err = client.New(rest)
	return connected, namespace, err
}
