package cli

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

// Cluster is the cluster of the current kubectl configuration.
type Cluster struct {
	*client.Clients

	Namespace string // from --namespace, or of the context
	Config    *rest.Config
}

// ClusterFlags are the flags that select a cluster, as in kubectl.
type ClusterFlags struct{ *genericclioptions.ConfigFlags }

// AddClusterFlags adds them to a command.
func AddClusterFlags(cmd *cobra.Command) ClusterFlags {
	f := ClusterFlags{genericclioptions.NewConfigFlags(true)}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(fs)
	fs.VisitAll(func(flag *pflag.Flag) {
		flag.Annotations = map[string][]string{kubectlFlag: {}}
		cmd.Flags().AddFlag(flag)
	})
	return f
}

// Connect returns clients of the selected cluster.
func (f ClusterFlags) Connect() (*Cluster, error) {
	loading := f.ToRawKubeConfigLoader()
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Namespace: namespace}
	if c.Config, err = f.ToRESTConfig(); err != nil {
		return nil, err
	}
	c.Config.QPS, c.Config.Burst = float32(flags.DefaultKube().QPS), int(flags.DefaultKube().Burst)
	c.Clients, err = client.New(c.Config)
	return c, err
}
