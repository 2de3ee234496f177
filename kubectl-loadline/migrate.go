package main

import (
	"bufio"
	"context"
	_ "embed" // the flags of the programs
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/checkpoint"
	"loadline.dev/loadline/pkg/convert"
)

const migrateHelp = `Compares an installation of the reference VPA, or of another one with its objects, with
what Loadline supports, and says what would change with its images. It changes
nothing. docs/migrate.md says how to move over, and back.`

// migrateChecks are what is looked at before an installation moves over.
var migrateChecks = []check{
	{"installation", lookAtInstallation},
	{"definitions", lookAtDefinitions},
	{"permissions", lookAtPermissions},
	{"webhook", lookAtOldWebhook},
	{"two VPAs on one target", lookAtRivals},
	{"unreadable VPAs", lookAtUnreadable},
	{"VPAs", lookAtModes},
	{"checkpoints", lookAtOldCheckpoints},
}

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "move over from another VPA", Args: args(cobra.NoArgs), RunE: func(*cobra.Command, []string) error {
		return usageError{errors.New("want the command check (see kubectl loadline migrate check --help)")}
	}}
	cmd.AddCommand(examineCommand(&cobra.Command{Use: "check [flags]", Short: "compare an installation of the reference VPA with what is supported", Long: migrateHelp}, migrateChecks, true))
	return cmd
}

//go:embed known-flags.txt
var knownFlags string

// knownFlag is a flag of one of the programs.
type knownFlag struct {
	bool      bool // it takes no value
	reference bool // the reference VPA has it, too
}

// flagsOf returns the flags of a program by name.
func flagsOf(program string) map[string]knownFlag {
	known := map[string]knownFlag{"help": {bool: true, reference: true}, "version": {bool: true}}
	for lines := bufio.NewScanner(strings.NewReader(knownFlags)); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 4 && words[0] == program {
			known[words[1]] = knownFlag{words[2] == "bool", words[3] == "reference"}
		}
	}
	return known
}

// unfit returns which flags of a command line a program does not know, and which of those that it
// knows the reference VPA does not.
func unfit(program string, line []string) (unknown, own []string) {
	known := flagsOf(program)
	for name := range given(program, line) {
		switch f, there := known[name]; {
		case !there:
			unknown = append(unknown, "--"+name)
		case !f.reference:
			own = append(own, "--"+name)
		}
	}
	return unknown, own
}

// given returns the flags of a command line of a program, as they are spelled in the docs, with
// their values.
func given(program string, line []string) iter.Seq2[string, string] {
	known := flagsOf(program)
	return func(yield func(name, value string) bool) {
		for i := 0; i < len(line); i++ {
			if !strings.HasPrefix(line[i], "-") {
				continue
			}
			name, value, valued := strings.Cut(strings.TrimLeft(line[i], "-"), "=")
			name = strings.ReplaceAll(name, "_", "-")
			switch f, there := known[name]; {
			case valued || !there:
			case f.bool:
				value = "true"
			case i+1 < len(line):
				i++
				value = line[i]
			}
			if !yield(name, value) {
				return
			}
		}
	}
}

// programs are those of an installation, by the end of the name of their images and Deployments.
var programs = []string{"recommender", "updater", "admission-controller"}

// programOf returns which program a container runs; empty: none.
func programOf(d *appsv1.Deployment, c *corev1.Container) string {
	image := c.Image[strings.LastIndex(c.Image, "/")+1:]
	if end := strings.IndexAny(image, ":@"); end >= 0 {
		image = image[:end]
	}
	for _, p := range programs {
		if image == "vpa-"+p || image == "loadline-"+p || d.Name == "vpa-"+p && len(d.Spec.Template.Spec.Containers) == 1 {
			return p
		}
	}
	return ""
}

func lookAtInstallation(_ context.Context, e *examination) error {
	if err := e.unread["Deployments"]; err != nil {
		return err
	}
	found := map[string]bool{}
	for i := range e.deployments {
		d := &e.deployments[i]
		for j := range d.Spec.Template.Spec.Containers {
			c := &d.Spec.Template.Spec.Containers[j]
			p := programOf(d, c)
			if p == "" {
				continue
			}
			found[p] = true
			object := "Deployment " + d.Namespace + "/" + d.Name
			next := fmt.Sprintf("kubectl -n %s set image deployment/%s %s=loadline-%s:TAG", d.Namespace, d.Name, c.Name, p)
			if upgrade := upgradingRelease(d, e.moves); upgrade != "" {
				next = upgrade
			}
			e.find(isNote, object, fmt.Sprintf("the image of container %s is %s", c.Name, c.Image), next)
			unknown, own := unfit(p, append(slices.Clone(c.Command), c.Args...))
			if len(unknown) > 0 {
				e.find(isError, object, fmt.Sprintf("it has flags that the %s does not know, so it would not start: %s", p, strings.Join(unknown, ", ")), "take them out; docs/flags.md has all flags")
			}
			if len(own) > 0 {
				e.find(isNote, object, "it has flags that the reference VPA does not know: "+strings.Join(own, ", "), "take them out before you go back")
			}
		}
	}
	for _, p := range programs {
		if !found[p] {
			e.find(isWarning, "Namespace "+e.programs, "no Deployment runs the "+p, "--programs-namespace says where to look; if there is none, kubectl apply -k dist/deploy")
		}
	}
	return nil
}

// longTimeout is from how many seconds on the webhook of an installation makes pods wait for long if
// it does not answer.
const longTimeout = 10

func lookAtOldWebhook(ctx context.Context, e *examination) error {
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
			if c.Name != webhookConfiguration && e.upgraded(c) {
				e.find(isNote, object, fmt.Sprintf("webhook %s is that of the release: the upgrade puts %s in its place", hook.Name, webhookConfiguration), "nothing")
				continue
			}
			if c.Name != webhookConfiguration {
				e.find(isWarning, object, fmt.Sprintf("webhook %s is another one for VPAs: both would size new pods", hook.Name), "delete it once its installation is gone")
				continue
			}
			if hook.TimeoutSeconds != nil && *hook.TimeoutSeconds > longTimeout {
				e.find(isNote, object, fmt.Sprintf("the API server waits %d seconds for webhook %s", *hook.TimeoutSeconds, hook.Name), "--webhook-timeout-seconds=5 of the admission controller, which takes over the configuration as it is")
			}
		}
	}
	return nil
}

func lookAtModes(_ context.Context, e *examination) error {
	counts := map[string]int{}
	for i := range e.vpas {
		v := &e.vpas[i]
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
		e.find(isNote, "VPAs", fmt.Sprintf("there are %d %s", counts[what], what), "nothing")
	}
	return e.needs("VPAs")
}

func lookAtOldCheckpoints(ctx context.Context, e *examination) error {
	list, err := e.own.AutoscalingV1().VerticalPodAutoscalerCheckpoints(e.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the definition, which has its own check
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
		e.find(isWarning, "checkpoint "+c.Namespace+"/"+c.Name, fmt.Sprintf("its version is %q, and only %q can be read: this history is lost", c.Status.Version, checkpoint.Version), "wait until the recommender that runs has written it anew")
	}
	e.find(isNote, "", fmt.Sprintf("their history is taken over; there are %d", read), "nothing")
	return nil
}
