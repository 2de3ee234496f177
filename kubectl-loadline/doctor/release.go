package doctor

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/kubectl-loadline/programs"
)

// Annotations of Helm on the objects of a release.
const (
	releaseAnnotation = "meta.helm.sh/release-name"
	releaseNamespace  = "meta.helm.sh/release-namespace"
)

// deployFolder is the folder with all objects except deploy/crds. make push writes it.
const deployFolder = "dist/deploy, or the folder that it was installed from"

// notInstalled reports whether a program has no Deployment, although another one has. For example,
// users of recommendations alone only install the recommender.
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

// upgradeCommand returns the command that upgrades the release of a Deployment, or "". A migration
// switches to the chart of Loadline.
func upgradeCommand(d *appsv1.Deployment, moves bool) string {
	name := d.Annotations[releaseAnnotation]
	if name == "" {
		return ""
	}
	chart := "CHART --reset-then-reuse-values, with the chart of the release"
	if moves {
		chart = "charts/loadline --reset-then-reuse-values --take-ownership, with images of yours as docs/migrate.md says"
	}
	return fmt.Sprintf("helm -n %s upgrade %s %s", cmp.Or(d.Annotations[releaseNamespace], d.Namespace), name, chart)
}

// replacedByUpgrade reports whether an object belongs to the release of a program. The upgrade removes
// such objects if the new chart lacks them.
func (e *examination) replacedByUpgrade(object metav1.Object) bool {
	of := object.GetAnnotations()
	return of[releaseAnnotation] != "" && slices.ContainsFunc(programs.Names, func(program string) bool {
		d := e.installed[program].Deployment
		return d != nil && d.Annotations[releaseAnnotation] == of[releaseAnnotation] && d.Annotations[releaseNamespace] == of[releaseNamespace]
	})
}
