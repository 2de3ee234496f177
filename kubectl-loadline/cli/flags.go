package cli

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/flags"
)

// AddProgramsFlag adds the flag with the namespace of the programs.
func AddProgramsFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "programs-namespace", metav1.NamespaceSystem, "Namespace in which recommender, updater and admission controller run.")
}

// ScopeFlags select the objects of a command.
type ScopeFlags struct {
	All      bool
	Selector string
}

// AddFlags adds them to a command. The help text names the objects.
func (s *ScopeFlags) AddFlags(cmd *cobra.Command, objects string) {
	cmd.Flags().BoolVarP(&s.All, "all-namespaces", "A", false, "Those of all namespaces.")
	cmd.Flags().StringVarP(&s.Selector, "selector", "l", "", "Only "+objects+" with labels that this selects.")
}

// Validate checks the selector.
func (s *ScopeFlags) Validate() error {
	if _, err := labels.Parse(s.Selector); err != nil {
		return flags.Problem("selector", s.Selector, err.Error())
	}
	return nil
}

// Namespace returns the namespace to read. Empty means all.
func (s *ScopeFlags) Namespace(of string) string {
	if s.All {
		return metav1.NamespaceAll
	}
	return of
}
