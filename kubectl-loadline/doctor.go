package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

const doctorHelp = `Looks for what keeps the programs from working, and VPAs from having an effect.
Each finding says what to do. An error stops something; a warning may.`

// severity is how bad a finding is.
type severity string

// The severities.
const (
	isError   severity = "error"
	isWarning severity = "warning"
	isNote    severity = "note" // nothing is wrong
)

// severityOrder has the worst first.
var severityOrder = []severity{isError, isWarning, isNote}

// finding is one thing that is wrong, or worth to know.
type finding struct {
	Severity severity `json:"severity"`
	Check    string   `json:"check"`
	Object   string   `json:"object,omitempty"`
	Problem  string   `json:"problem"`
	Fix      string   `json:"fix"`
}

// check is one question about a cluster.
type check struct {
	name string
	look func(context.Context, *examination) error // an error says that it is not known
}

// doctorChecks are those of the doctor, in the order in which they are made.
var doctorChecks = []check{
	{"definitions", lookAtDefinitions},
	{"metrics API", lookAtMetricsAPI},
	{"programs", lookAtPrograms},
	{"leases", lookAtLeases},
	{"permissions", lookAtPermissions},
	{"webhook", lookAtWebhook},
	{"certificate", lookAtCertificate},
	{"resize in place", lookAtResizeSupport},
	{"two VPAs on one target", lookAtRivals},
	{"targets", lookAtTargets},
	{"unreadable VPAs", lookAtUnreadable},
	{"container policies", lookAtContainerNames},
	{"limits", lookAtLimits},
	{"fuses", lookAtFuses},
	{"recommenders", lookAtRecommenders},
	{"checkpoints", lookAtCheckpoints},
	{"horizontal autoscalers", lookAtHPAs},
	{"disruption budgets", lookAtBudgets},
	{"LimitRanges", lookAtLimitRanges},
	{"size of nodes", lookAtNodeSizes},
}

// examination is a cluster that is looked at. What several checks want is read once.
type examination struct {
	kube      kubernetes.Interface // with AuthorizationV1
	own       versioned.Interface
	now       time.Time
	programs  string // namespace of the programs
	moves     bool   // the installation is another one that may move over: what ours has besides is no fault of it
	namespace string // of the VPAs; empty: all

	owners      *target.Live
	deployments []appsv1.Deployment   // of the namespace of the programs
	installed   map[string]*installed // by program
	vpas        []vpav1.VerticalPodAutoscaler
	nodes       []corev1.Node
	hpas        []autoscalingv2.HorizontalPodAutoscaler
	budgets     []policyv1.PodDisruptionBudget
	unread      map[string]error        // what could not be read, by resource
	leavesHPAs  map[string]bool         // see leavesToHPAs, by policy
	pods        map[string][]corev1.Pod // see podsOf, by namespace
	check       string
	findings    []finding
}

// find notes a finding of the current check, once.
func (e *examination) find(s severity, object, problem, fix string) {
	if f := (finding{s, e.check, object, problem, fix}); !slices.Contains(e.findings, f) {
		e.findings = append(e.findings, f)
	}
}

// doctorAnswer is what was found.
type doctorAnswer struct {
	Findings  []finding `json:"findings"`
	Looked    []string  `json:"checks"`              // that were made
	Unchecked []string  `json:"unchecked,omitempty"` // that could not be, and why
}

// read reads what several checks look at.
func (e *examination) read(ctx context.Context) {
	e.unread = map[string]error{}
	e.owners = target.NewLive(e.kube, client.NewScales(e.kube).Scale)
	e.deployments, e.unread["Deployments"] = readDeployments(ctx, e.kube, e.programs)
	e.installed = map[string]*installed{}
	for _, p := range programs {
		e.installed[p] = asInstalled(p, e.programs, e.deployments)
	}
	if list, err := e.own.AutoscalingV1().VerticalPodAutoscalers(e.namespace).List(ctx, metav1.ListOptions{}); err != nil {
		e.unread["VPAs"] = err
	} else {
		e.vpas = list.Items
	}
	if list, err := e.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		e.unread["nodes"] = err
	} else {
		e.nodes = list.Items
	}
	if list, err := e.kube.AutoscalingV2().HorizontalPodAutoscalers(e.namespace).List(ctx, metav1.ListOptions{}); err != nil {
		e.unread["HorizontalPodAutoscalers"] = err
	} else {
		e.hpas = list.Items
	}
	if list, err := e.kube.PolicyV1().PodDisruptionBudgets(e.namespace).List(ctx, metav1.ListOptions{}); err != nil {
		e.unread["PodDisruptionBudgets"] = err
	} else {
		e.budgets = list.Items
	}
}

// needs returns why one of some resources could not be read.
func (e *examination) needs(resources ...string) error {
	for _, r := range resources {
		if err := e.unread[r]; err != nil {
			return fmt.Errorf("list %s: %w", r, err)
		}
	}
	return nil
}

// examine makes checks.
func (e *examination) examine(ctx context.Context, checks []check) *doctorAnswer {
	e.read(ctx)
	a := &doctorAnswer{}
	for _, c := range checks {
		e.check = c.name
		if err := c.look(ctx, e); err != nil {
			a.Unchecked = append(a.Unchecked, fmt.Sprintf("%s: %v", c.name, err))
			continue
		}
		a.Looked = append(a.Looked, c.name)
	}
	a.Findings = append([]finding{}, e.findings...)
	slices.SortStableFunc(a.Findings, func(x, y finding) int {
		return cmp.Compare(slices.Index(severityOrder, x.Severity), slices.Index(severityOrder, y.Severity))
	})
	return a
}

func (a *doctorAnswer) tables() []table {
	t := table{Columns: []string{"SEVERITY", "CHECK", "OBJECT", "PROBLEM", "FIX"}}
	for _, f := range a.Findings {
		t.Rows = append(t.Rows, []string{string(f.Severity), f.Check, dash(f.Object), f.Problem, f.Fix})
	}
	return []table{t}
}

func (a *doctorAnswer) notes() []string {
	notes := []string{fmt.Sprintf("Checks made: %d, findings: %d", len(a.Looked), len(a.Findings))}
	for _, u := range a.Unchecked {
		notes = append(notes, "! not checked: "+u)
	}
	return notes
}

// asText writes the findings as blocks, because their sentences are too long for columns.
func (a *doctorAnswer) asText() string {
	var b strings.Builder
	for _, f := range a.Findings {
		printable.Fprintf(&b, "%s  %s", f.Severity, f.Check)
		if f.Object != "" {
			printable.Fprintf(&b, ": %s", f.Object)
		}
		if f.Severity == isNote {
			printable.Fprintf(&b, "\n  %s\n  next  %s\n", f.Problem, f.Fix)
			continue
		}
		printable.Fprintf(&b, "\n  %s\n  fix  %s\n", f.Problem, f.Fix)
	}
	for _, note := range a.notes() {
		printable.Fprintln(&b, note)
	}
	return b.String()
}

// has reports whether there is a finding at least as bad as that.
func (a *doctorAnswer) has(s severity) bool {
	return slices.ContainsFunc(a.Findings, func(f finding) bool { return slices.Index(severityOrder, f.Severity) <= slices.Index(severityOrder, s) })
}

// failOn are the values of --fail-on.
var failOn = []string{"never", string(isError), string(isWarning)}

func doctorCommand() *cobra.Command {
	return examineCommand(&cobra.Command{Use: "doctor [flags]", Short: "look for what keeps the programs from working, and say what to do", Long: doctorHelp}, doctorChecks, false)
}

// examineCommand completes a command that makes checks, of our installation or of another one that may move over.
func examineCommand(cmd *cobra.Command, checks []check, moves bool) *cobra.Command {
	where, output := addClusterFlags(cmd), addOutputFlag(cmd)
	programs, fails := "", ""
	addProgramsFlag(cmd, &programs)
	cmd.Flags().StringVar(&fails, "fail-on", failOn[0], "Findings with which the exit code is 1: "+strings.Join(failOn, ", ")+".")
	cmd.Args = args(cobra.NoArgs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := wrong(output.validate(), flags.Check(slices.Contains(failOn, fails), "fail-on", fails, "must be "+strings.Join(failOn, ", "))); err != nil {
			return err
		}
		cluster, err := where.Connect()
		if err != nil {
			return err
		}
		reviews, err := authorizationv1.NewForConfig(cluster.Config)
		if err != nil {
			return err
		}
		// All namespaces are looked at unless one is given; that of the context is none.
		e := examination{kube: reviewing{cluster.Kube, reviews}, own: cluster.VPA, now: time.Now(), programs: programs, moves: moves, namespace: *where.Namespace}
		a := e.examine(cmd.Context(), checks)
		if output.Format == formats[0] {
			_, _ = io.WriteString(cmd.OutOrStdout(), a.asText())
		} else if err := output.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a); err != nil {
			return err
		}
		if fails != failOn[0] && a.has(severity(fails)) {
			return exitCode(flags.Failed)
		}
		return nil
	}
	return cmd
}

// reviewing are the clients of a cluster with that of reviews of permissions, which no program needs.
type reviewing struct {
	kubernetes.Interface

	reviews authorizationv1.AuthorizationV1Interface
}

// AuthorizationV1 returns the client of reviews.
func (r reviewing) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return r.reviews }
