// Package doctor checks installations for the commands doctor and migrate.
package doctor

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
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
	"loadline.dev/loadline/pkg/printable"
)

const doctorHelp = `Looks for what keeps the programs from working, and VPAs from having an effect.
Each finding says what to do. An error stops something; a warning may.`

type severity string

const (
	severityError   severity = "error"
	severityWarning severity = "warning"
	severityNote    severity = "note" // information only
)

var severityOrder = []severity{severityError, severityWarning, severityNote}

type finding struct {
	Severity severity `json:"severity"`
	Check    string   `json:"check"`
	Object   string   `json:"object,omitempty"`
	Problem  string   `json:"problem"`
	Fix      string   `json:"fix"`
}

type check struct {
	name string
	run  func(context.Context, *examination) error // an error means that the check is not possible
}

var doctorChecks = []check{
	{"definitions", checkDefinitions},
	{"metrics API", checkMetricsAPI},
	{"programs", checkPrograms},
	{"leases", checkLeases},
	{"permissions", checkPermissions},
	{"webhook", checkWebhook},
	{"certificate", checkCertificate},
	{"resize in place", checkResizeSupport},
	{"two VPAs on one target", checkRivals},
	{"targets", checkTargets},
	{"unreadable VPAs", checkUnreadable},
	{"container policies", checkContainerNames},
	{"limits", checkLimits},
	{"fuses", checkFuses},
	{"recommenders", checkRecommenders},
	{"checkpoints", checkCheckpoints},
	{"horizontal autoscalers", checkHPAs},
	{"disruption budgets", checkBudgets},
	{"LimitRanges", checkLimitRanges},
	{"size of nodes", checkNodeSizes},
}

// examination runs checks. It reads shared objects once.
type examination struct {
	kube      kubernetes.Interface // includes AuthorizationV1
	own       versioned.Interface
	now       time.Time
	programs  string // namespace of the programs
	migrating bool   // before a migration: missing parts are no faults
	namespace string // of the VPAs. Empty: all

	owners      *target.Live
	deployments []appsv1.Deployment               // in the namespace of the programs
	installed   map[string]*programs.Installation // by program
	vpas        []*vpav1.VerticalPodAutoscaler
	nodes       []corev1.Node
	hpas        []autoscalingv2.HorizontalPodAutoscaler
	budgets     []policyv1.PodDisruptionBudget
	unread      map[string]error        // errors by resource
	yieldsToHPA map[string]bool         // see yields, by policy
	pods        map[string][]corev1.Pod // see podsOf, by namespace
	check       string
	findings    []finding
}

func (e *examination) add(s severity, object, problem, fix string) {
	if f := (finding{s, e.check, object, problem, fix}); !slices.Contains(e.findings, f) {
		e.findings = append(e.findings, f)
	}
}

type doctorReport struct {
	Findings  []finding `json:"findings"`
	Checked   []string  `json:"checks"`              // completed checks
	Unchecked []string  `json:"unchecked,omitempty"` // impossible checks, and why
}

func (e *examination) read(ctx context.Context) {
	e.unread, e.yieldsToHPA, e.pods = map[string]error{}, map[string]bool{}, map[string][]corev1.Pod{}
	e.owners = target.NewLive(e.kube, client.NewScales(e.kube).Scale)
	e.deployments, e.unread["Deployments"] = programs.ListDeployments(ctx, e.kube, e.programs)
	e.installed = map[string]*programs.Installation{}
	for _, p := range programs.Names {
		e.installed[p] = programs.FindInstallation(p, e.programs, e.deployments)
	}
	vpas, err := e.own.AutoscalingV1().VerticalPodAutoscalers(e.namespace).List(ctx, metav1.ListOptions{})
	if e.unread["VPAs"] = err; err == nil {
		for i := range vpas.Items {
			e.vpas = append(e.vpas, &vpas.Items[i])
		}
	}
	nodes, err := e.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if e.unread["nodes"] = err; err == nil {
		e.nodes = nodes.Items
	}
	hpas, err := e.kube.AutoscalingV2().HorizontalPodAutoscalers(e.namespace).List(ctx, metav1.ListOptions{})
	if e.unread["HorizontalPodAutoscalers"] = err; err == nil {
		e.hpas = hpas.Items
	}
	budgets, err := e.kube.PolicyV1().PodDisruptionBudgets(e.namespace).List(ctx, metav1.ListOptions{})
	if e.unread["PodDisruptionBudgets"] = err; err == nil {
		e.budgets = budgets.Items
	}
}

func (e *examination) require(resources ...string) error {
	for _, r := range resources {
		if err := e.unread[r]; err != nil {
			return fmt.Errorf("list %s: %w", r, err)
		}
	}
	return nil
}

func (e *examination) examine(ctx context.Context, checks []check) *doctorReport {
	e.read(ctx)
	a := &doctorReport{}
	for _, c := range checks {
		e.check = c.name
		if err := c.run(ctx, e); err != nil {
			a.Unchecked = append(a.Unchecked, fmt.Sprintf("%s: %v", c.name, err))
			continue
		}
		a.Checked = append(a.Checked, c.name)
	}
	a.Findings = append([]finding{}, e.findings...)
	slices.SortStableFunc(a.Findings, func(x, y finding) int {
		return cmp.Compare(slices.Index(severityOrder, x.Severity), slices.Index(severityOrder, y.Severity))
	})
	return a
}

func (a *doctorReport) Tables() []cli.Table {
	t := cli.Table{Columns: []string{"SEVERITY", "CHECK", "OBJECT", "PROBLEM", "FIX"}}
	for _, f := range a.Findings {
		t.Rows = append(t.Rows, []string{string(f.Severity), f.Check, cmp.Or(f.Object, "-"), f.Problem, f.Fix})
	}
	return []cli.Table{t}
}

func (a *doctorReport) Notes() []string {
	notes := []string{fmt.Sprintf("Checks made: %d, findings: %d", len(a.Checked), len(a.Findings))}
	for _, u := range a.Unchecked {
		notes = append(notes, "! not checked: "+u)
	}
	return notes
}

// text formats findings as blocks, because sentences are too long for columns.
func (a *doctorReport) text() string {
	var b strings.Builder
	for _, f := range a.Findings {
		printable.Fprintf(&b, "%s  %s", f.Severity, f.Check)
		if f.Object != "" {
			printable.Fprintf(&b, ": %s", f.Object)
		}
		label := "fix"
		if f.Severity == severityNote {
			label = "next"
		}
		printable.Fprintf(&b, "\n  %s\n  %s  %s\n", f.Problem, label, f.Fix)
	}
	for _, note := range a.Notes() {
		printable.Fprintln(&b, note)
	}
	return b.String()
}

func (a *doctorReport) has(s severity) bool {
	return slices.ContainsFunc(a.Findings, func(f finding) bool { return slices.Index(severityOrder, f.Severity) <= slices.Index(severityOrder, s) })
}

var failOn = []string{"never", string(severityError), string(severityWarning)}

// examineCommand completes a command that runs checks.
func examineCommand(cmd *cobra.Command, checks []check, moves bool) *cobra.Command {
	where, output := cli.AddClusterFlags(cmd), cli.AddOutputFlag(cmd)
	programs, fails := "", ""
	cli.AddProgramsFlag(cmd, &programs)
	cmd.Flags().StringVar(&fails, "fail-on", failOn[0], "Findings with which the exit code is 1: "+strings.Join(failOn, ", ")+".")
	cmd.Args = cli.Args(cobra.NoArgs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.Invalid(output.Validate(), flags.Check(slices.Contains(failOn, fails), "fail-on", fails, "must be "+strings.Join(failOn, ", "))); err != nil {
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
		// Without a flag, all namespaces are checked, not the namespace of the context.
		e := examination{kube: reviewing{cluster.Kube, reviews}, own: cluster.VPA, now: time.Now(), programs: programs, migrating: moves, namespace: *where.Namespace}
		a := e.examine(cmd.Context(), checks)
		if output.Format == cli.Formats[0] {
			_, _ = io.WriteString(cmd.OutOrStdout(), a.text())
		} else if err := output.Print(cmd.OutOrStdout(), cmd.ErrOrStderr(), a); err != nil {
			return err
		}
		if fails != failOn[0] && a.has(severity(fails)) {
			return cli.Exit(flags.ExitFailed)
		}
		return nil
	}
	return cmd
}

// reviewing adds the client of permission reviews, which no other program needs.
type reviewing struct {
	kubernetes.Interface

	reviews authorizationv1.AuthorizationV1Interface
}

func (r reviewing) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return r.reviews }

// Commands returns doctor and migrate.
func Commands() []*cobra.Command {
	doctor := &cobra.Command{Use: "doctor [flags]", Short: "find problems of the installation, and suggest fixes", Long: doctorHelp}
	return []*cobra.Command{examineCommand(doctor, doctorChecks, false), migrateCommand()}
}

const (
	releaseAnnotation = "meta.helm.sh/release-name"
	releaseNamespace  = "meta.helm.sh/release-namespace"
)

// deployFolder is the folder with all objects except deploy/crds. make push writes it.
const deployFolder = "dist/deploy, or the folder that it was installed from"

// notInstalled reports whether a program is missing although another one has a Deployment.
func (e *examination) notInstalled(program string) bool {
	return e.installed[program].Deployment == nil && slices.ContainsFunc(programs.Names, func(p string) bool { return e.installed[p].Deployment != nil })
}

// installCommand returns the command that adds missing objects, by Helm or from a folder.
func (e *examination) installCommand(folder string) string {
	for _, p := range programs.Names {
		if d := e.installed[p].Deployment; d != nil {
			if upgrade := upgradeCommand(d, e.migrating); upgrade != "" {
				return upgrade
			}
		}
	}
	return "kubectl apply -k " + folder
}

// upgradeCommand returns the Helm upgrade of a Deployment, or "". A migration switches the chart.
func upgradeCommand(d *appsv1.Deployment, moves bool) string {
	name := d.Annotations[releaseAnnotation]
	if name == "" {
		return ""
	}
	chart := "CHART --reset-then-reuse-values, with the chart of the release"
	if moves {
		chart = "charts/loadline --reset-then-reuse-values --take-ownership, with your images as described in docs/migrate.md"
	}
	return fmt.Sprintf("helm -n %s upgrade %s %s", cmp.Or(d.Annotations[releaseNamespace], d.Namespace), name, chart)
}

// replacedByUpgrade reports objects of the release, which Helm removes if the new chart lacks them.
func (e *examination) replacedByUpgrade(object metav1.Object) bool {
	annotations := object.GetAnnotations()
	return annotations[releaseAnnotation] != "" && slices.ContainsFunc(programs.Names, func(program string) bool {
		d := e.installed[program].Deployment
		return d != nil && d.Annotations[releaseAnnotation] == annotations[releaseAnnotation] && d.Annotations[releaseNamespace] == annotations[releaseNamespace]
	})
}
