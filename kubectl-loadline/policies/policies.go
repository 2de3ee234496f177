// Package policies implements the commands about SizingPolicies.
package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

// policyCommand has one command, detach, for use before a downgrade or uninstallation.
func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "detach SizingPolicies from their pods", Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return cli.Invalid(errors.New("missing command: must be detach (see kubectl loadline policy detach --help)"))
		},
	}
	cmd.AddCommand(detachCommand())
	return cmd
}

const detachHelp = `Takes a SizingPolicy off its workloads: pauses it, removes from their pods the
annotations of changes that are under observation, which nobody takes back then,
and removes their SizingRecords. Sizes of pods stay. VPAs that were made for the
policy stay, too: they are of mode Off and change no pod.

The updater may be at work meanwhile: run it again after a minute, until nothing
is left to remove.`

func detachCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "detach [flags] NAME", Long: detachHelp, Short: "take a SizingPolicy off its pods, before a downgrade or uninstall"}
	where := cli.AddClusterFlags(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "Only say what would be done.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Invalid(errors.New("must have the name of one SizingPolicy as argument"))
		}
		if *where.Namespace != "" {
			return cli.Invalid(errors.New("--namespace: a SizingPolicy has no namespace, it is taken off its pods in all namespaces"))
		}
		cluster, err := where.Connect()
		if err != nil {
			return err
		}
		return detach(cmd.Context(), cluster.Clients, detachOptions{Policy: args[0], DryRun: *dryRun}, cmd.OutOrStdout())
	}
	return cmd
}

// Commands returns the commands about SizingPolicies.
func Commands() []*cobra.Command { return []*cobra.Command{policyCommand()} }

type detachOptions struct {
	Policy string
	DryRun bool // write nothing
}

type detachment struct {
	detachOptions

	clients   *client.Clients
	out       io.Writer
	reader    *sizing.Reader
	generated map[cache.ObjectName]*vpav1.VerticalPodAutoscaler // generated for the policy
	selected  map[target.Key]bool                               // whether the policy selects a workload
	owners    map[target.Key]target.Key                         // of ReplicaSets
	removed   int
	sharing   int     // pods that keep a share of their node
	failed    []error // errors of single objects
}

// detach pauses a policy, ends the observation of its pods and deletes its SizingRecords. It continues
// after an error of one object, but not if the policy cannot be paused or objects cannot be listed.
func detach(ctx context.Context, clients *client.Clients, o detachOptions, out io.Writer) error {
	d := &detachment{
		detachOptions: o, clients: clients, out: out, generated: map[cache.ObjectName]*vpav1.VerticalPodAutoscaler{},
		selected: map[target.Key]bool{}, owners: map[target.Key]target.Key{},
	}
	exists, err := d.pause(ctx)
	if err != nil {
		return err
	}
	if d.reader, err = sizing.NewReader(ctx, clients.Kube, clients.VPA, fleet.Options{}); err != nil {
		return err
	}
	vpas, err := clients.VPA.AutoscalingV1().VerticalPodAutoscalers("").List(ctx, metav1.ListOptions{LabelSelector: labels.Set{fleet.PolicyLabel: o.Policy}.String()})
	if err != nil {
		return fmt.Errorf("list VPAs: %w", err)
	}
	for i := range vpas.Items {
		if v := &vpas.Items[i]; convert.IsGenerated(v) {
			d.generated[cache.MetaObjectToName(v)] = v
		}
	}
	if !exists && len(d.generated) == 0 {
		return fmt.Errorf("SizingPolicy %s does not exist, and no VPA was made for it", o.Policy)
	}
	if err := inventory.EachPod(ctx, clients.Kube, "", func(p *corev1.Pod) { d.removeAnnotations(ctx, p) }); err != nil {
		return err
	}
	if err := d.records(ctx); err != nil {
		return err
	}
	d.reportRemaining()
	return errors.Join(d.failed...)
}

func (d *detachment) report(object, done, would string) {
	if d.DryRun {
		done = would
	}
	printable.Fprintf(d.out, "%s: %s\n", object, done)
}

func (d *detachment) fail(object string, err error) {
	d.failed = append(d.failed, fmt.Errorf("%s: %w", object, err))
}

func (d *detachment) pause(ctx context.Context) (exists bool, err error) {
	policies, object := d.clients.VPA.LoadlineV1alpha1().SizingPolicies(), "SizingPolicy "+d.Policy
	p, err := policies.Get(ctx, d.Policy, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		printable.Fprintf(d.out, "%s: does not exist\n", object)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", object, err)
	case p.Spec.Paused != nil && *p.Spec.Paused:
		printable.Fprintf(d.out, "%s: is paused already\n", object)
		return true, nil
	case !d.DryRun:
		if _, err = policies.Patch(ctx, d.Policy, types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}); err != nil {
			return false, fmt.Errorf("pause %s: %w", object, err)
		}
	}
	d.report(object, "paused", "would be paused")
	return true, nil
}

// removeAnnotations removes the annotations of an observed change, and counts pods with a share.
func (d *detachment) removeAnnotations(ctx context.Context, p *corev1.Pod) {
	_, noted := p.Annotations[convert.OriginalAnnotation]
	noted = noted || convert.HasNotedChange(p)
	_, shares := convert.ParseShared(p)
	if !noted && !shares {
		return
	}
	object := "pod " + p.Namespace + "/" + p.Name
	mine, err := d.selects(ctx, p)
	if mine && shares {
		d.sharing++
	}
	mine = mine && noted
	if err == nil && mine && !d.DryRun {
		var patch []byte // the UID ties the patch to this pod
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "annotations": map[string]any{convert.ResizedAtAnnotation: nil, convert.OriginalAnnotation: nil}}})
		if err == nil {
			_, err = d.clients.Kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	switch {
	case apierrors.IsNotFound(err): // deleted meanwhile
	case err != nil:
		d.fail(object, err)
	case mine:
		d.removed++
		d.report(object, "is no longer under observation, and keeps its sizes", "would no longer be under observation, and keep its sizes")
	}
}

func (d *detachment) selects(ctx context.Context, p *corev1.Pod) (bool, error) {
	workload, controlled, err := d.workload(ctx, p)
	if err != nil || !controlled {
		return false, err
	}
	return d.isSelected(ctx, workload)
}

func (d *detachment) workload(ctx context.Context, p *corev1.Pod) (target.Key, bool, error) {
	key, controlled := target.Controller(p.Namespace, p.OwnerReferences)
	if !controlled || key.Kind != "ReplicaSet" || key.Group != "" {
		return key, controlled, nil
	}
	if above, known := d.owners[key]; known {
		return above, true, nil
	}
	set, err := d.clients.Kube.AppsV1().ReplicaSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return key, true, fmt.Errorf("read %s: %w", key, err)
	}
	above, controlled := target.Controller(key.Namespace, set.OwnerReferences)
	if !controlled {
		above = key
	}
	d.owners[key] = above
	return above, true, nil
}

// isSelected reports whether the policy selects a workload, or generated its VPA if none does now.
func (d *detachment) isSelected(ctx context.Context, workload target.Key) (bool, error) {
	if mine, known := d.selected[workload]; known {
		return mine, nil
	}
	p, err := d.reader.PolicyFor(ctx, workload)
	if err != nil {
		return false, err
	}
	_, mine := d.generated[sizing.RecordName(workload)]
	if p != nil {
		mine = p.Name == d.Policy
	}
	d.selected[workload] = mine
	return mine, nil
}

func (d *detachment) records(ctx context.Context) error {
	list, err := d.clients.VPA.LoadlineV1alpha1().SizingRecords("").List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // the definition is not installed
		return nil
	}
	if err != nil {
		return fmt.Errorf("list SizingRecords: %w", err)
	}
	for i := range list.Items {
		d.record(ctx, &list.Items[i])
	}
	return nil
}

func (d *detachment) record(ctx context.Context, r *loadlinev1alpha1.SizingRecord) {
	name := cache.MetaObjectToName(r)
	object := "SizingRecord " + name.String()
	workload, known := d.workloadOf(r)
	mine, err := d.generated[name] != nil, error(nil)
	if known {
		mine, err = d.isSelected(ctx, workload)
	}
	if err == nil && mine && !d.DryRun {
		err = d.clients.VPA.LoadlineV1alpha1().SizingRecords(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
	}
	switch {
	case apierrors.IsNotFound(err): // deleted meanwhile
	case err != nil:
		d.fail(object, err)
	case mine:
		d.removed++
		d.report(object, "removed", "would be removed")
	}
}

func (d *detachment) workloadOf(r *loadlinev1alpha1.SizingRecord) (target.Key, bool) {
	for _, o := range r.OwnerReferences {
		if key := target.NewKey(r.Namespace, o.APIVersion, o.Kind, o.Name); sizing.RecordName(key).Name == r.Name {
			return key, true
		}
	}
	return target.Key{}, false
}

func (d *detachment) reportRemaining() {
	if d.removed == 0 && len(d.failed) == 0 {
		printable.Fprintln(d.out, "nothing is left to remove")
	}
	if len(d.generated) > 0 {
		printable.Fprintf(d.out, "VPAs generated for it that stay: %d; with mode Off they change no pod\n", len(d.generated))
	}
	if d.sharing > 0 {
		printable.Fprintf(d.out, "! %d pods keep their share of the node headroom, because a paused policy changes no pod: set spec.sharing.mode: \"Off\" before pausing the policy to return it\n", d.sharing)
	}
	var acting []string
	for name, vpa := range d.generated {
		if mode := convert.Mode(vpa); mode != vpav1.UpdateModeOff {
			acting = append(acting, fmt.Sprintf("! VPA %s was made for it and is of mode %s: other programs may change pods because of it. Set its mode to Off, or remove it", name, mode))
		}
	}
	slices.SortFunc(acting, strings.Compare)
	for _, text := range acting {
		printable.Fprintln(d.out, text)
	}
}
