package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
)

// kubectlFlag marks the flags that kubectl has, too.
const kubectlFlag = "loadline.dev/kubectl"

// cluster is the one that a command is about: that which kubectl would use.
type cluster struct {
	*client.Clients

	Namespace string // the given one, or else that of the context
	Config    *rest.Config
}

// clusterFlags are those by which kubectl finds a cluster.
type clusterFlags struct{ *genericclioptions.ConfigFlags }

// addClusterFlags binds them to a command.
func addClusterFlags(cmd *cobra.Command) clusterFlags {
	f := clusterFlags{genericclioptions.NewConfigFlags(true)}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(fs)
	fs.VisitAll(func(flag *pflag.Flag) {
		flag.Annotations = map[string][]string{kubectlFlag: {}}
		cmd.Flags().AddFlag(flag)
	})
	return f
}

// Connect returns the cluster with clients as kubectl would have them.
func (f clusterFlags) Connect() (*cluster, error) {
	loading := f.ToRawKubeConfigLoader()
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, err
	}
	c := &cluster{Namespace: namespace}
	if c.Config, err = f.ToRESTConfig(); err != nil {
		return nil, err
	}
	c.Config.QPS, c.Config.Burst = float32(flags.DefaultKube().QPS), int(flags.DefaultKube().Burst)
	c.Clients, err = client.New(c.Config)
	return c, err
}
