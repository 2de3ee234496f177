package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/kubectl-loadline/cli"
	"loadline.dev/loadline/kubectl-loadline/programs"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
)

const migrateHelp = `Compares an installation of the reference VPA, or of another one with its objects, with
what Loadline supports, and says what would change with its images. It changes
nothing. docs/migrate.md says how to move over, and back.`

var migrateChecks = []check{
	{"installation", checkInstallation},
	{"definitions", checkDefinitions},
	{"permissions", checkPermissions},
	{"webhook", checkOldWebhook},
	{"two VPAs on one target", checkRivals},
	{"unreadable VPAs", checkUnreadable},
	{"VPAs", checkModes},
	{"checkpoints", checkOldCheckpoints},
}

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "move over from another VPA", Args: cli.Args(cobra.NoArgs), RunE: func(*cobra.Command, []string) error {
		return cli.Invalid(errors.New("missing command: must be check (see kubectl loadline migrate check --help)"))
	}}
	cmd.AddCommand(examineCommand(&cobra.Command{Use: "check [flags]", Short: "compare an installation of the reference VPA with the supported features", Long: migrateHelp}, migrateChecks, true))
	return cmd
}

func checkInstallation(_ context.Context, e *examination) error {
	if err := e.unread["Deployments"]; err != nil {
		return err
	}
	found := map[string]bool{}
	for i := range e.deployments {
		d := &e.deployments[i]
		for j := range d.Spec.Template.Spec.Containers {
			c := &d.Spec.Template.Spec.Containers[j]
			p := programs.OfContainer(d, c)
			if p == "" {
				continue
			}
			found[p] = true
			object := "Deployment " + d.Namespace + "/" + d.Name
			next := cmp.Or(upgradeCommand(d, e.migrating),
				fmt.Sprintf("kubectl -n %s set image deployment/%s %s=loadline-%s:TAG", d.Namespace, d.Name, c.Name, p))
			e.add(severityNote, object, fmt.Sprintf("the image of container %s is %s", c.Name, c.Image), next)
			unknown, own := programs.UnsupportedFlags(p, slices.Concat(c.Command, c.Args))
			if len(unknown) > 0 {
				e.add(severityError, object, fmt.Sprintf("it has flags that the %s does not know, so it would not start: %s", p, strings.Join(unknown, ", ")), "take them out; docs/flags.md has all flags")
			}
			if len(own) > 0 {
				e.add(severityNote, object, "it has flags that the reference VPA does not know: "+strings.Join(own, ", "), "take them out before you go back")
			}
		}
	}
	for _, p := range programs.Names {
		if !found[p] {
			e.add(severityWarning, "Namespace "+e.programs, "no Deployment runs the "+p, "set --programs-namespace to its namespace; if there is none, kubectl apply -k dist/deploy")
		}
	}
	return nil
}

// maxTimeout is the longest acceptable timeout of a webhook, in seconds.
const maxTimeout = 10

func checkOldWebhook(ctx context.Context, e *examination) error {
	list, err := e.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list MutatingWebhookConfigurations: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		object := "MutatingWebhookConfiguration " + c.Name
		for j := range c.Webhooks {
			hook := &c.Webhooks[j]
			if c.Name != webhookConfiguration && !strings.HasSuffix(hook.Name, "vpa.k8s.io") {
				continue
			}
			if c.Name != webhookConfiguration && e.replacedByUpgrade(c) {
				e.add(severityNote, object, fmt.Sprintf("webhook %s is that of the release: the upgrade puts %s in its place", hook.Name, webhookConfiguration), "nothing")
				continue
			}
			if c.Name != webhookConfiguration {
				e.add(severityWarning, object, fmt.Sprintf("webhook %s is another one for VPAs: both would size new pods", hook.Name), "delete it once its installation is gone")
				continue
			}
			if hook.TimeoutSeconds != nil && *hook.TimeoutSeconds > maxTimeout {
				e.add(severityNote, object, fmt.Sprintf("the API server waits %d seconds for webhook %s", *hook.TimeoutSeconds, hook.Name), "--webhook-timeout-seconds=5 of the admission controller, which takes over the configuration as it is")
			}
		}
	}
	return nil
}

func checkModes(_ context.Context, e *examination) error {
	counts := map[string]int{}
	for _, v := range e.vpas {
		if convert.Mode(v) == vpav1.UpdateModeAuto {
			counts["of mode Auto, which is that of Recreate here, too"]++
		}
		for _, r := range v.Spec.Recommenders {
			if r != nil && r.Name != "" && r.Name != "default" {
				counts[fmt.Sprintf("that ask for recommender %q: it goes on serving them", r.Name)]++
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		e.add(severityNote, "VPAs", fmt.Sprintf("there are %d %s", counts[what], what), "nothing")
	}
	return e.require("VPAs")
}

func checkOldCheckpoints(ctx context.Context, e *examination) error {
	list, err := e.own.AutoscalingV1().VerticalPodAutoscalerCheckpoints(e.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // another check covers the definition
	}
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	read := 0
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Version == checkpoint.Version {
			read++
			continue
		}
		e.add(severityWarning, "checkpoint "+c.Namespace+"/"+c.Name, fmt.Sprintf("its version is %q, and only %q can be read: this history is lost", c.Status.Version, checkpoint.Version), "wait until the recommender that runs has written it anew")
	}
	e.add(severityNote, "", fmt.Sprintf("their history is taken over; there are %d", read), "nothing")
	return nil
}
