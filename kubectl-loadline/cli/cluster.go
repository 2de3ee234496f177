package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/kube/client"
)

// kubectlFlag marks the flags that kubectl has too.
const kubectlFlag = "loadline.dev/kubectl"

// Cluster is the cluster of the current kubectl configuration.
type Cluster struct {
	*client.Clients

	Namespace string // from --namespace, or of the context
	Config    *rest.Config
}

// ClusterFlags are the flags that select a cluster, as in kubectl.
type ClusterFlags struct{ *genericclioptions.ConfigFlags }

// AddClusterFlags adds the flags to a command.
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

// AddProgramsFlag adds the flag with the namespace of the programs.
func AddProgramsFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "programs-namespace", metav1.NamespaceSystem, "Namespace in which recommender, updater and admission controller run.")
}

// ScopeFlags select the objects of a command.
type ScopeFlags struct {
	All      bool
	Selector string

	Labels labels.Selector // parsed Selector, set by Validate
}

// AddFlags adds the flags to a command. The help text names the objects.
func (s *ScopeFlags) AddFlags(cmd *cobra.Command, objects string) {
	cmd.Flags().BoolVarP(&s.All, "all-namespaces", "A", false, "Those of all namespaces.")
	cmd.Flags().StringVarP(&s.Selector, "selector", "l", "", "Only "+objects+" with labels that this selects.")
}

// Validate parses the selector.
func (s *ScopeFlags) Validate() error {
	var err error
	if s.Labels, err = labels.Parse(s.Selector); err != nil {
		return flags.Problem("selector", s.Selector, err.Error())
	}
	return nil
}

// Namespace returns the namespace to read. Empty means all.
func (s *ScopeFlags) Namespace(current string) string {
	if s.All {
		return metav1.NamespaceAll
	}
	return current
}
