package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/printable"
)

// pooling describes the headroom of a node.
var pooling = [...]string{sharing.Largest: "with the largest headroom for all", sharing.Root: "with the root of the squares of all headrooms"}

// print writes the shares of a node, and the pods without shares.
func (n *nodeReport) print(out io.Writer, this *corev1.Pod) error {
	printable.Fprintf(out, "\nnode %s: ", n.Name)
	switch {
	case len(n.Policies) == 0:
		printable.Fprintln(out, "no policy wants its pods to share what it has left")
	case len(n.Groups) == 0:
		printable.Fprintln(out, "no pod shares")
	default:
		printable.Fprintln(out, strings.Join(n.describeGroups(), "; "))
	}
	for _, p := range n.Policies {
		printable.Fprintf(out, "SizingPolicy: %s, sharing %s", p.Name, *p.Spec.Sharing.Mode)
		if c := meta.FindStatusCondition(p.Status.Conditions, sizing.ConditionSharing); c != nil {
			printable.Fprintf(out, "; condition Sharing %s, %s: %s", c.Status, c.Reason, c.Message)
		}
		printable.Fprintln(out)
	}
	for _, unread := range n.Unread {
		printable.Fprintln(out, "!", unread)
	}
	if n.Problem != "" {
		printable.Fprintf(out, "! %s: nothing could be changed there\n", n.Problem)
	}
	if n.Cordoned && len(n.Policies) > 0 {
		printable.Fprintln(out, "! it takes no new pods, so what is saved serves nobody")
	}
	if n.Assumed != 0 && (len(n.Groups) > 0 || slices.ContainsFunc(n.Excluded, func(p excludedPod) bool { return p.Why() == reason.NewWorkload })) {
		printable.Fprintf(out, "assumed: a workload shares from an age of %s on; give --sharing-min-age if the updater has another\n", n.Assumed)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := range n.Groups {
		if len(n.Groups) > 1 {
			printable.Fprintf(w, "%s:\n", groupTitles[n.Groups[i].Acts])
		}
		for k := range resources.Kind(resources.Kinds) {
			if n.Groups[i].Input.Kinds[k] && n.Problem != reason.AllocatableUnknown {
				n.Groups[i].printKind(w, k, n.Allocatable, this)
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, p := range n.Excluded {
		printable.Fprintf(w, "  does not share\t%s%s\t%s\n", p.Name, highlight(p.Name, this), exclusion(p.Pod))
	}
	for _, p := range n.Marked {
		printable.Fprintf(w, "  has a share\t%s%s\t%s\n", p.Name, highlight(p.Name, this), p.describe())
	}
	if n.Others > 0 && len(n.Policies) > 0 {
		printable.Fprintf(w, "  others\tpods that no policy wants to share: %d, which request cpu %s, memory %s\n", n.Others, cli.FormatResource(n.OtherRequests, resources.CPU), cli.FormatResource(n.OtherRequests, resources.Memory))
	}
	return w.Flush()
}

// groupTitles are titles by whether pods get their shares.
var groupTitles = map[bool]string{true: "pods that share", false: "pods that would share, in a dry run"}

// describeGroups describes the groups of sharing pods.
func (n *nodeReport) describeGroups() (texts []string) {
	for _, g := range n.Groups {
		texts = append(texts, fmt.Sprintf("%s: %d, %s", groupTitles[g.Acts], len(g.Members), pooling[g.Rule.Pooling]))
	}
	return texts
}

// describe describes the mark of a pod.
func (p *markedPod) describe() string {
	var kinds []string
	for k := range resources.Kind(resources.Kinds) {
		if p.Kinds[k] {
			kinds = append(kinds, k.String())
		}
	}
	text := strings.Join(kinds, ", ")
	switch {
	case p.At.IsZero():
		return text + ", never made smaller"
	case p.Reverted:
		return text + ", did harm, so it was taken back at " + cli.Timestamp(p.At)
	}
	return text + ", made smaller at " + cli.Timestamp(p.At)
}

// printKind writes the capacity and the shares of one kind.
func (g *sharingGroup) printKind(w io.Writer, k resources.Kind, allocatable resources.List, this *corev1.Pod) {
	bases, given := 0.0, 0.0
	rows := make([][]string, 0, len(g.Members))
	for i, p := range g.Members {
		base, peak, share := 0.0, 0.0, 0.0
		for c, of := range g.Input.Pods[i].Containers {
			base, peak = base+of.Base[k], peak+of.Peak[k]
			if g.Shares.Shares[i] != nil {
				share += g.Shares.Shares[i][c][k]
			}
		}
		least := p.Sharing.Init[k]
		gets := "leaves the node"
		if g.Shares.Shares[i] != nil {
			gets = cli.FormatAmount(k, max(share, least))
			bases, given = bases+max(base, least), given+max(share, least)
		}
		rows = append(rows, []string{"  ", p.Sharing.Name + highlight(p.Sharing.Name, this),
			cli.FormatAmount(k, max(base, least)), cli.FormatAmount(k, max(base, peak, least)), gets, cli.FormatResource(p.Takes, k)})
	}
	over := ""
	if g.Shares.Overcommitted[k] {
		over = "; the bases alone are more than that"
	}
	printable.Fprintf(w, "  %s\tallocatable %s, available to those who share %s: bases %s, headroom %s, left %s%s\n", k, cli.FormatResource(allocatable, k),
		cli.FormatAmount(k, g.Input.Available[k]), cli.FormatAmount(k, bases), cli.FormatAmount(k, g.Shares.Headroom[k]), cli.FormatAmount(k, g.Input.Available[k]-given), over)
	printable.Row(w, "  ", "POD", "BASE", "PEAK", "SHARE", "REQUESTS")
	for _, row := range rows {
		printable.Row(w, row...)
	}
}

// highlight marks the requested pod in a list.
func highlight(name string, this *corev1.Pod) string {
	if name == cli.PodName(this) {
		return " *"
	}
	return ""
}
