package explain

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/pkg/kube/nodeshare"
	"loadline.dev/loadline/pkg/kube/sizing"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

// nodeReport is the sharing round that the updater would run on a node now.
type nodeReport struct {
	nodeshare.Node

	Name          string
	Assumed       time.Duration                    // assumed minimum age of workloads with shares. 0: given
	Policies      []*loadlinev1alpha1.SizingPolicy // that enable sharing for pods of the node, by name
	Groups        []sharingGroup                   // of pods that share among themselves: active ones and a dry run
	Excluded      []excludedPod                    // pods without shares despite their policy, by name
	Marked        []markedPod                      // pods with a mark, by name
	Others        int                              // pods without a sharing policy
	OtherRequests resources.List                   // of these pods
	Unread        []string                         // errors about pods whose VPA is unknown. They count as others
}

// sharingGroup are pods of a node that share among themselves. For active pods, pods of a dry run take
// their requests, and vice versa.
type sharingGroup struct {
	Acts    bool
	Input   *sharing.Node
	Rule    sharing.Rule
	Members []*nodeshare.Pod // sorted by name
	Shares  sharing.Result   // of the members. Empty if the capacity is unknown
}

// markedPod is a pod with a sharing mark.
type markedPod struct {
	sharing.Mark

	Name string
}

// excludedPod is a pod without a share.
type excludedPod struct {
	*nodeshare.Pod

	Name string
}

// readNode reads a node and its pods.
func readNode(ctx context.Context, s *inventory.Reader, name string) (*nodeReport, error) {
	object, err := s.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := s.Kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods of all namespaces: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(cli.PodName(&a), cli.PodName(&b)) })
	n := &nodeReport{Name: name, Node: nodeshare.NodeOf(object)}
	if s.SharingMinAge == 0 {
		n.Assumed = sharing.MinAge
	}
	policies := map[string]*loadlinev1alpha1.SizingPolicy{}
	var pods []*nodeshare.Pod
	names, acting := map[*nodeshare.Pod]string{}, map[*nodeshare.Pod]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != name || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		by, err := s.Controlling(ctx, pod)
		if err != nil {
			n.addUnread(pod, err)
		}
		p := sharingPod(ctx, s, pod, by, &n.Node)
		if p.Of != nil {
			policies[by.Standing.Policy.Name] = by.Standing.Object
			acting[p] = n.Problem == "" && actsOn(by)
		}
		if mark, marked := convert.Shared(pod); marked {
			n.Marked = append(n.Marked, markedPod{mark, cli.PodName(pod)})
		}
		pods, names[p] = append(pods, p), cli.PodName(pod)
	}
	n.Policies = slices.SortedFunc(maps.Values(policies), func(a, b *loadlinev1alpha1.SizingPolicy) int { return strings.Compare(a.Name, b.Name) })
	for _, acts := range [...]bool{true, false} {
		for _, p := range pods {
			p.Beside = acting[p] != acts
		}
		n.gather(pods, acts)
	}
	for _, p := range pods {
		switch p.Why() {
		case "":
		case reason.NotWanted:
			n.Others++
			for k := range resources.Kind(resources.Kinds) {
				n.OtherRequests = n.OtherRequests.With(k, n.OtherRequests.Value(k).Add(p.Takes.Value(k)))
			}
		default:
			n.Excluded = append(n.Excluded, excludedPod{p, names[p]})
		}
	}
	return n, nil
}

// actsOn reports whether the policy of a VPA gives its pods their shares.
func actsOn(c *inventory.VPA) bool {
	return c.Sharing != nil && c.Sharing.Mode == fleet.SharingOn && meta.IsStatusConditionTrue(c.Standing.Object.Status.Conditions, sizing.ConditionSharing)
}

// gather adds a group of sharing pods, unless it is empty.
func (n *nodeReport) gather(pods []*nodeshare.Pod, acts bool) {
	g := sharingGroup{Acts: acts}
	if g.Input, g.Rule, g.Members = n.Gather(pods); len(g.Members) == 0 {
		return
	}
	if n.Problem != reason.AllocatableUnknown {
		g.Shares = sharing.Shares(g.Input, g.Rule)
	}
	n.Groups = append(n.Groups, g)
}

// addUnread records why the VPA of a pod is unknown, once per cause.
func (n *nodeReport) addUnread(pod *corev1.Pod, err error) {
	if !slices.ContainsFunc(n.Unread, func(text string) bool { return strings.HasSuffix(text, ": "+err.Error()) }) {
		n.Unread = append(n.Unread, fmt.Sprintf("it is not known which VPA controls pod %s, so it counts as one that no policy wants to share: %v", cli.PodName(pod), err))
	}
}

// sharingPod reads a pod as the updater does.
func sharingPod(ctx context.Context, s *inventory.Reader, pod *corev1.Pod, by *inventory.VPA, on *nodeshare.Node) *nodeshare.Pod {
	if by == nil || by.Sharing == nil {
		return new(nodeshare.Unwanted(pod))
	}
	p := by.Sharing.Read(pod, &nodeshare.Sizes{}, on, s.Now)
	replicas := int32(-1)
	if owner, owned := target.Controller(pod.Namespace, pod.OwnerReferences); owned && by.Sharing.Settings.Evict {
		if wanted, known := s.Owners.Replicas(ctx, owner); known {
			replicas = wanted
		}
	}
	p.Sharing.Rank = by.Sharing.Rank(int(replicas))
	return &p
}

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
	bases, shared := 0.0, 0.0
	rows := make([][]string, 0, len(g.Members))
	for i, p := range g.Members {
		base, peak, share := 0.0, 0.0, 0.0
		for c, container := range g.Input.Pods[i].Containers {
			base, peak = base+container.Base[k], peak+container.Peak[k]
			if g.Shares.Shares[i] != nil {
				share += g.Shares.Shares[i][c][k]
			}
		}
		minimum := p.Sharing.Init[k]
		gets := "leaves the node"
		if g.Shares.Shares[i] != nil {
			gets = cli.FormatAmount(k, max(share, minimum))
			bases, shared = bases+max(base, minimum), shared+max(share, minimum)
		}
		rows = append(rows, []string{"  ", p.Sharing.Name + highlight(p.Sharing.Name, this),
			cli.FormatAmount(k, max(base, minimum)), cli.FormatAmount(k, max(base, peak, minimum)), gets, cli.FormatResource(p.Takes, k)})
	}
	over := ""
	if g.Shares.Overcommitted[k] {
		over = "; the bases alone are more than that"
	}
	printable.Fprintf(w, "  %s\tallocatable %s, available to those who share %s: bases %s, headroom %s, left %s%s\n", k, cli.FormatResource(allocatable, k),
		cli.FormatAmount(k, g.Input.Available[k]), cli.FormatAmount(k, bases), cli.FormatAmount(k, g.Shares.Headroom[k]), cli.FormatAmount(k, g.Input.Available[k]-shared), over)
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
