package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/inventory"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

const historyHelp = `Shows what was done to the pods of workloads, the newest first: the rounds of changes
that SizingRecords remember, changes that are under observation now, and the events
of the updater, which the API server keeps for an hour. An argument is a part of the
name of the objects.`

func historyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "history [flags] [NAME]", Short: "show changes of pods and their outcomes", Long: historyHelp, Args: cli.Args(cobra.MaximumNArgs(1))}
	where, output := cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	all := cmd.Flags().BoolP("all-namespaces", "A", false, "Those of all namespaces.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.Invalid(output.Validate()); err != nil {
			return err
		}
		cluster, err := where.Connect()
		if err != nil {
			return err
		}
		q := inventory.Request{Namespace: (&cli.ScopeFlags{All: *all}).Namespace(cluster.Namespace), Name: strings.Join(args, ""), Now: time.Now(), Kube: cluster.Kube}
		a, err := historyOf(cmd.Context(), cluster.VPA, q)
		if err != nil {
			return err
		}
		return output.Print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a)
	}
	return cmd
}

type historyEntry struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Object    string    `json:"object"`
	Action    string    `json:"what"`
	Outcome   string    `json:"outcome,omitempty"`
	Reason    string    `json:"reason,omitempty"`
}

type historyReport struct {
	Entries  []historyEntry `json:"history"` // newest first
	Problems []string       `json:"problems,omitempty"`
}

// historyOf reads the history of a namespace, or of all. The request's name is part of object names.
func historyOf(ctx context.Context, own versioned.Interface, q inventory.Request) (*historyReport, error) {
	a := &historyReport{Entries: []historyEntry{}}
	records, err := own.LoadlineV1alpha1().SizingRecords(q.Namespace).List(ctx, metav1.ListOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err): // not found: the CRD is not installed
		a.Problems = append(a.Problems, fmt.Sprintf("list SizingRecords: %v", err))
	case err == nil:
		for i := range records.Items {
			a.rounds(&records.Items[i])
		}
	}
	pods, err := inventory.LivePods(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if change, err := convert.ParseChange(&pods[i]); err == nil && convert.HasNotedChange(&pods[i]) {
			a.Entries = append(a.Entries, historyEntry{Time: change.At, Namespace: pods[i].Namespace, Object: "Pod " + pods[i].Name, Action: "changed", Outcome: "under observation"})
		}
	}
	events, err := q.Kube.CoreV1().Events(q.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		a.Problems = append(a.Problems, fmt.Sprintf("list events: %v", err))
	} else {
		for i := range events.Items {
			if e := &events.Items[i]; e.Source.Component == programs.UpdaterComponent {
				a.Entries = append(a.Entries, historyEntry{Time: e.LastTimestamp.Time, Namespace: e.Namespace, Object: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, Action: eventText(e), Reason: e.Reason})
			}
		}
	}
	a.Entries = slices.DeleteFunc(a.Entries, func(d historyEntry) bool { return !strings.Contains(d.Object, q.Name) })
	slices.SortStableFunc(a.Entries, func(a, b historyEntry) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Object, b.Object))
	})
	if len(a.Entries) == 0 {
		text := "no SizingRecord, no observed pod and no event of the updater was found " + q.DescribeScope(nil)
		if q.Name != "" {
			text += " for names with " + q.Name
		}
		a.Problems = append(a.Problems, text)
	}
	return a, nil
}

func eventText(e *corev1.Event) string {
	if sizes := e.Annotations[convert.EventSizesAnnotation]; sizes != "" {
		return e.Message + ": " + sizes
	}
	return e.Message
}

func (a *historyReport) rounds(r *loadlinev1alpha1.SizingRecord) {
	object := "SizingRecord " + r.Name
	for _, o := range r.OwnerReferences {
		object = o.Kind + " " + o.Name
	}
	for i := range r.Status.Rounds {
		round := &r.Status.Rounds[i]
		outcome := cmp.Or(string(round.Outcome), "in progress")
		a.Entries = append(a.Entries, historyEntry{round.Time.Time, r.Namespace, object, roundText(round), outcome, round.Reason})
	}
}

func roundText(r *loadlinev1alpha1.Round) string {
	parts := []string{fmt.Sprintf("pods changed: %d", r.Pods)}
	for _, to := range r.To {
		var from corev1.ResourceList
		for _, f := range r.From {
			if f.Name == to.Name {
				from = corev1.ResourceList(f.Requests)
			}
		}
		for k := range resources.Kind(resources.Kinds) {
			if _, written := to.Requests[convert.ResourceName(k)]; written {
				parts = append(parts, fmt.Sprintf("%s %s %s to %s", to.Name, k, cli.FormatQuantity(from, k), cli.FormatQuantity(corev1.ResourceList(to.Requests), k)))
			}
		}
	}
	if r.Outcome == loadlinev1alpha1.RoundDeferred {
		parts = append(parts, deferredRevert)
	}
	return strings.Join(parts, ", ")
}

const deferredRevert = "the node did not apply the revert in time"

func (a *historyReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"TIME", "NAMESPACE", "OBJECT", "WHAT", "OUTCOME", "REASON"}}
	for _, d := range a.Entries {
		t.Rows = append(t.Rows, []string{cli.Timestamp(d.Time), d.Namespace, d.Object, d.Action, cmp.Or(d.Outcome, "-"), cmp.Or(d.Reason, "-")})
	}
	return []cli.Table{t}
}

func (a *historyReport) Notes() []string { return cli.Warnings(a.Problems) }
