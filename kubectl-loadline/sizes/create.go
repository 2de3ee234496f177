package sizes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

const createHelp = `Prints a VPA of mode Off, which changes no pod, for each workload that has running
pods and no VPA; or with --policy one SizingPolicy of mode Recommend that selects
their kinds in their namespaces. With --apply it creates them. Arguments are
KIND/NAME or NAME; without any: all workloads of the namespace. The Jobs of a CronJob
share its VPA; a Job without one is left out unless it is an argument.

With -A, and neither -l nor arguments, the policy selects all namespaces: names: ["*"],
those that come later, too. With -A and one of these it lists the namespaces that were
found. Neither selects kube-system, kube-public, kube-node-lease and the namespace of
the programs (--programs-namespace): ask for one of those with -n.`

func createCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "create [flags] [[KIND/]NAME...]", Short: "write VPAs, or a SizingPolicy, for many workloads", Long: createHelp}
	where, scope, want := cli.AddClusterFlags(cmd), cli.ScopeFlags{}, createOptions{}
	scope.AddFlags(cmd, "pods")
	apply := cmd.Flags().Bool("apply", false, "Create the objects. Without, they are printed.")
	cmd.Flags().StringVar(&want.Policy, "policy", "", "Name of one SizingPolicy in place of VPAs.")
	cli.AddProgramsFlag(cmd, &want.Programs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.Invalid(scope.Validate()); err != nil {
			return err
		}
		cluster, err := where.Connect()
		if err != nil {
			return err
		}
		q := inventory.Request{Namespace: scope.Namespace(cluster.Namespace), Kube: cluster.Kube}
		found, err := readWorkloads(cmd.Context(), cluster.VPA, q, inventory.Selection{Selector: scope.Labels, Names: args, Unsized: true})
		if err != nil {
			return err
		}
		want.Named, want.All, want.Labelled = len(args) > 0, scope.All, scope.Selector != ""
		c, err := objectsFor(found.workloads, want)
		if err != nil {
			return err
		}
		c.problems = append(c.problems, found.problems...)
		if *apply {
			return errors.Join(c.apply(cmd.Context(), cluster.VPA, cmd.OutOrStdout()), found.missing)
		}
		return errors.Join(c.print(cmd.OutOrStdout(), cmd.ErrOrStderr()), found.missing)
	}
	return cmd
}

type createOptions struct {
	Policy   string // name of a SizingPolicy. Empty: VPAs
	Named    bool   // workloads are selected by name. The policy lists names in place of kinds
	All      bool   // in all namespaces
	Labelled bool   // workloads are selected by labels
	Programs string // namespace of the programs
}

// everywhere reports whether the policy selects all namespaces, future ones included.
func (w *createOptions) everywhere() bool { return w.All && !w.Named && !w.Labelled }

type manifests struct {
	vpas     []*vpav1.VerticalPodAutoscaler
	policy   *loadlinev1alpha1.SizingPolicy // nil: VPAs
	problems []string
}

func versionOf(key target.Key) (string, bool) {
	switch group := key.GroupKind().Group; group {
	case "apps", "batch":
		return group + "/v1", true
	case "":
		return "v1", key.Kind == "ReplicationController"
	}
	return "", false
}

func objectsFor(workloads []*inventory.Workload, want createOptions) (*manifests, error) {
	c := &manifests{}
	if want.Policy != "" && want.All {
		workloads = c.withoutSystem(workloads, want.Programs)
	}
	kinds, namespaces := map[string]loadlinev1alpha1.WorkloadSelection{}, map[string]bool{}
	for _, w := range workloads {
		version, known := versionOf(w.Key)
		if inventory.IsJob(w.Key) && !want.Named {
			c.problems = append(c.problems, fmt.Sprintf("%s in namespace %s is left out: a Job runs once, and its VPA would not serve the next one: "+
				"give its name as an argument to create it", w.Key, w.Key.Namespace))
			continue
		}
		if !known {
			c.problems = append(c.problems, fmt.Sprintf("%s in namespace %s is left out: the API version of its kind is not known here", w.Key, w.Key.Namespace))
			continue
		}
		vpa := &vpav1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: w.Key.Namespace, Name: fleet.GeneratedVPAName(w.Key.Kind, w.Key.Group, w.Key.Name)}}
		vpa.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{APIVersion: version, Kind: w.Key.Kind, Name: w.Key.Name}
		vpa.Spec.UpdatePolicy = &vpav1.PodUpdatePolicy{UpdateMode: new(vpav1.UpdateModeOff)}
		c.vpas = append(c.vpas, vpa)
		selection := loadlinev1alpha1.WorkloadSelection{APIVersion: version, Kind: w.Key.Kind}
		if want.Named || !fleet.Listed(w.Key.Group, w.Key.Kind) {
			selection.Name = w.Key.Name
		}
		key := selection.Kind
		if selection.Name != "" {
			key += "/" + selection.Name
		}
		kinds[key] = selection
		namespaces[w.Key.Namespace] = true
	}
	if want.Policy == "" || len(c.vpas) == 0 {
		return c, nil
	}
	p := &loadlinev1alpha1.SizingPolicy{ObjectMeta: metav1.ObjectMeta{Name: want.Policy}}
	for _, key := range slices.Sorted(maps.Keys(kinds)) {
		p.Spec.Workloads = append(p.Spec.Workloads, kinds[key])
	}
	p.Spec.Namespaces.Names = slices.Sorted(maps.Keys(namespaces))
	if want.everywhere() {
		p.Spec.Namespaces.Names = []string{fleet.AllNamespaces}
	}
	p.Spec.Rollout = &loadlinev1alpha1.Rollout{Mode: new(loadlinev1alpha1.RolloutModeRecommend)}
	c.policy, c.vpas = p, nil
	return c, c.limitSize(&want)
}

// withoutSystem drops and reports workloads in namespaces that "*" in a policy does not select.
func (c *manifests) withoutSystem(workloads []*inventory.Workload, programs string) (others []*inventory.Workload) {
	all := fleet.NewSet([]fleet.Policy{{Mode: fleet.Auto, Namespaces: fleet.Namespaces{Names: []string{fleet.AllNamespaces}}}}, fleet.Options{OwnNamespace: programs})
	spared := map[string]bool{}
	for _, w := range workloads {
		if all.MayChangePods(w.Key.Namespace, nil) {
			others = append(others, w)
		} else {
			spared[w.Key.Namespace] = true
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(spared)) {
		c.problems = append(c.problems, fmt.Sprintf("namespace %s is left out, as it is one of the system or of the programs: -n selects it", namespace))
	}
	return others
}

// limitSize fails if the policy is too large. Names that are not arguments are dropped first.
func (c *manifests) limitSize(want *createOptions) error {
	spec := &c.policy.Spec
	if n := len(spec.Namespaces.Names); n > convert.MaxNamespaces {
		return fmt.Errorf("the policy would list %d namespaces, and the API server takes %d: give -A without -l and without names, which selects all of them, or write more than one policy, each with a label or names of fewer", n, convert.MaxNamespaces)
	}
	n := len(spec.Workloads)
	if n <= convert.MaxWorkloads {
		return nil
	}
	kinds := slices.DeleteFunc(slices.Clone(spec.Workloads), func(w loadlinev1alpha1.WorkloadSelection) bool { return w.Name != "" })
	listed := strings.Join(fleet.ListedKinds(), ", ")
	if want.Named || len(kinds) == 0 {
		return fmt.Errorf("the policy would select %d workloads by name, and the API server takes %d: write more than one policy, each with the names of fewer as arguments; without names a policy selects all of the kinds %s", n, convert.MaxWorkloads, listed)
	}
	c.problems = append(c.problems, fmt.Sprintf("workloads of other kinds than %s are left out: %d can only be selected by name, and the API server takes %d entries in a policy; give names of fewer as arguments, for a policy of their own", listed, n-len(kinds), convert.MaxWorkloads))
	spec.Workloads = kinds
	return nil
}

type manifest struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       any            `json:"spec"`
}

func (c *manifests) documents() (all []any) {
	if p := c.policy; p != nil {
		return []any{manifest{loadlinev1alpha1.SchemeGroupVersion.String(), "SizingPolicy", map[string]any{"name": p.Name}, p.Spec}}
	}
	for _, v := range c.vpas {
		all = append(all, manifest{vpav1.SchemeGroupVersion.String(), "VerticalPodAutoscaler", map[string]any{"name": v.Name, "namespace": v.Namespace}, v.Spec})
	}
	return all
}

const nothingUnsized = "no workload without a VPA was found"

func (c *manifests) print(out, errOut io.Writer) error {
	for _, problem := range c.problems {
		printable.Fprintln(errOut, "!", problem)
	}
	documents := c.documents()
	if len(documents) == 0 {
		printable.Fprintln(errOut, nothingUnsized)
	}
	return printYAML(out, documents)
}

func printYAML(out io.Writer, documents []any) error {
	for i, d := range documents {
		text, err := cli.MarshalYAML(d)
		if err != nil {
			return err
		}
		if i > 0 {
			printable.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// apply creates the objects. Existing objects stay unchanged.
func (c *manifests) apply(ctx context.Context, own versioned.Interface, out io.Writer) error {
	var failed []error
	note := func(object string, err error) {
		switch {
		case apierrors.IsAlreadyExists(err):
			printable.Fprintf(out, "%s: exists already\n", object)
		case err != nil:
			failed = append(failed, fmt.Errorf("create %s: %w", object, err))
		default:
			printable.Fprintf(out, "%s: created\n", object)
		}
	}
	for _, v := range c.vpas {
		_, err := own.AutoscalingV1().VerticalPodAutoscalers(v.Namespace).Create(ctx, v, metav1.CreateOptions{})
		note(cli.VPAName(v), err)
	}
	if c.policy != nil {
		_, err := own.LoadlineV1alpha1().SizingPolicies().Create(ctx, c.policy, metav1.CreateOptions{})
		note("SizingPolicy "+c.policy.Name, err)
	}
	for _, problem := range c.problems {
		printable.Fprintln(out, "!", problem)
	}
	if len(c.vpas) == 0 && c.policy == nil {
		printable.Fprintln(out, nothingUnsized)
	}
	return errors.Join(failed...)
}
