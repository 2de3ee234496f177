package convert

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones of schedules: images have no others, and all programs must know the same ones

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	"loadline.dev/loadline/pkg/core/fleet"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/rollout"
	"loadline.dev/loadline/pkg/core/sharing"
)

const ownPrefix = loadlinev1alpha1.GroupName + "/"

// Limits of the API server for a policy.
const (
	MaxWorkloads  = 32  // entries of spec.workloads
	MaxNamespaces = 256 // namespace names
)

const (
	maxExcluded  = 100
	maxWindows   = 32
	maxValues    = 256 // of one selector expression
	maxMetadata  = 32
	maxZoneBytes = 64 // bytes
	// maxMetadataBytes is the API server limit for the annotations of an object, less the space for
	// the annotations of the recommender.
	maxMetadataBytes = 200 << 10
	maxPriority      = 1000
	minObservation   = time.Minute

	// maxNameBytes is the maximum length of a label key, the longest kind of name. Longer texts are
	// not matched with patterns, which takes 50 ns for each byte.
	maxNameBytes = validation.DNS1123SubdomainMaxLength + len("/") + validation.LabelValueMaxLength

	maxProblems = 20
	maxQuoted   = 100 // bytes of a value in a problem
)

// CheckPolicy returns all problems of a SizingPolicy in field order, and warnings about valid
// fields with a probably unintended effect, at most 20 of each. A policy without problems is
// usable. CheckPolicy repeats the CRD schema, because its messages name the valid values. It does
// not check resourcePolicy, which is checked like the one of a VPA. Schedule zones require a time
// zone database.
func CheckPolicy(p *loadlinev1alpha1.SizingPolicy) (problems field.ErrorList, warnings []string) {
	ch := &policyCheck{}
	if problem := p.Annotations[vpav1.UnreadableAnnotation]; problem != "" {
		ch.refuse(field.InternalError(field.NewPath("."), errors.New(problem)))
	}
	if n := len(p.Name); n > validation.LabelValueMaxLength {
		ch.refuse(field.TooLong(field.NewPath("metadata", "name"), "", validation.LabelValueMaxLength))
	}
	spec, at := &p.Spec, field.NewPath("spec")
	if n := spec.Priority; n != nil && (*n < 1 || *n > maxPriority) {
		ch.refuse(field.Invalid(at.Child("priority"), *n, "must be from 1 to 1000"))
	}
	if spec.Recommender != nil && *spec.Recommender == "" {
		ch.refuse(field.Invalid(at.Child("recommender"), "", "must be the --recommender-name of a recommender; leave it out for the one named default"))
	}
	ch.namespaces(&spec.Namespaces, at.Child("namespaces"))
	ch.workloads(spec.Workloads, at.Child("workloads"))
	oneOf(ch, at.Child("vpas"), spec.VPAs, loadlinev1alpha1.VPAsIfMissing, loadlinev1alpha1.VPAsNever)
	if m := spec.VPAMetadata; m != nil {
		ch.metadata(m.Labels, at.Child("vpaMetadata", "labels"), validation.IsValidLabelValue)
		ch.metadata(m.Annotations, at.Child("vpaMetadata", "annotations"), nil)
	}
	if spec.Recipe != nil {
		if problem := recipe.Problem(*spec.Recipe); problem != "" {
			ch.refuse(field.Invalid(at.Child("recipe"), *spec.Recipe, problem))
		}
	}
	if spec.Containers != nil {
		ch.names(spec.Containers.Exclude, at.Child("containers", "exclude"), maxExcluded, "must be the name of a container")
	}
	if spec.Rollout != nil {
		ch.rollout(spec.Rollout, at.Child("rollout"))
	}
	if spec.Safety != nil {
		ch.safety(spec.Safety, at.Child("safety"))
	}
	if spec.Sharing != nil {
		ch.sharing(spec, at.Child("sharing"))
	}
	if problem := acknowledgeProblem(p, time.Time{}, time.Time{}); problem != nil {
		ch.warn("%s, it acknowledges nothing", problem)
	}
	return ch.problems, ch.warnings
}

type policyCheck struct {
	problems field.ErrorList
	warnings []string
}

func (ch *policyCheck) refuse(e *field.Error) {
	if ch.isFull() {
		return
	}
	if text, ok := e.BadValue.(string); ok {
		e.BadValue = truncate(text)
	}
	ch.problems = append(ch.problems, e)
}

func (ch *policyCheck) isFull() bool { return len(ch.problems) >= maxProblems }

func (ch *policyCheck) refuseLong(text string, at *field.Path) bool {
	if len(text) <= maxNameBytes {
		return false
	}
	ch.refuse(field.TooLong(at, "", maxNameBytes))
	return true
}

func (ch *policyCheck) warn(format string, args ...any) {
	if len(ch.warnings) < maxProblems {
		ch.warnings = append(ch.warnings, fmt.Sprintf(format, args...))
	}
}

func (ch *policyCheck) namespaces(n *loadlinev1alpha1.NamespaceSelection, at *field.Path) {
	if len(n.Names) == 0 && n.Selector == nil {
		ch.refuse(field.Required(at, `must have names or a selector; names: ["*"] selects all namespaces`))
	}
	named := slices.DeleteFunc(slices.Clone(n.Names), func(name string) bool { return name == fleet.AllNamespaces })
	all := len(named) < len(n.Names)
	ch.names(named, at.Child("names"), MaxNamespaces, `must be the name of a namespace, or "*" for all`)
	ch.selector(n.Selector, at.Child("selector"))
	ch.names(n.Exclude, at.Child("exclude"), MaxNamespaces, "must be the name of a namespace")
	switch {
	case len(n.Names) > MaxNamespaces || len(n.Exclude) > MaxNamespaces:
	case all && len(n.Exclude) == 0:
		ch.warn(`%s: "*" selects every namespace except kube-system, kube-public, kube-node-lease and the namespace of Loadline: add namespaces that must not change to exclude`, at.Child("names"))
	case !all && n.Selector == nil && len(named) > 0 && !slices.ContainsFunc(named, func(name string) bool { return !slices.Contains(n.Exclude, name) }):
		ch.warn("%s: no namespace is selected: exclude contains all of names", at)
	}
}

func (ch *policyCheck) names(names []string, at *field.Path, limit int, requirement string) {
	if len(names) > limit {
		ch.refuse(field.TooMany(at, len(names), limit))
		return
	}
	for _, name := range names {
		if ch.refuseLong(name, at) {
			continue
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			ch.refuse(field.Invalid(at, name, requirement+": "+problems[0]))
		}
	}
}

// selector checks a label selector until the list of problems is full, because every client can
// send a selector with thousands of parts.
func (ch *policyCheck) selector(selector *metav1.LabelSelector, at *field.Path) {
	if selector == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		if ch.isFull() {
			return
		}
		if at := at.Child("matchLabels"); ch.refuseLong(key, at) || ch.refuseLong(selector.MatchLabels[key], at.Key(key)) {
			continue
		}
		for _, e := range metavalidation.ValidateLabels(map[string]string{key: selector.MatchLabels[key]}, at.Child("matchLabels")) {
			ch.refuse(e)
		}
	}
	for i, r := range selector.MatchExpressions {
		if ch.isFull() {
			return
		}
		at := at.Child("matchExpressions").Index(i)
		if n := len(r.Values); n > maxValues {
			ch.refuse(field.TooMany(at.Child("values"), n, maxValues))
			continue
		}
		if ch.refuseLong(r.Key, at.Child("key")) || slices.ContainsFunc(r.Values, func(value string) bool { return ch.refuseLong(value, at.Child("values")) }) {
			continue
		}
		for _, e := range metavalidation.ValidateLabelSelectorRequirement(r, metavalidation.LabelSelectorValidationOptions{}, at) {
			if operator, ok := e.BadValue.(metav1.LabelSelectorOperator); ok {
				e.BadValue, e.Detail = string(operator), "must be In, NotIn, Exists or DoesNotExist"
			}
			ch.refuse(e)
		}
	}
}

func (ch *policyCheck) workloads(all []loadlinev1alpha1.WorkloadSelection, at *field.Path) {
	switch n := len(all); {
	case n == 0:
		ch.refuse(field.Required(at, "must have at least one kind, for example {apiVersion: apps/v1, kind: Deployment}"))
	case n > MaxWorkloads:
		ch.refuse(field.TooMany(at, n, MaxWorkloads))
		return
	}
	for i := range all {
		ch.workload(&all[i], at.Index(i))
	}
}

func (ch *policyCheck) workload(w *loadlinev1alpha1.WorkloadSelection, at *field.Path) {
	if w.APIVersion == "" {
		ch.refuse(field.Required(at.Child("apiVersion"), "must be the group and version of the kind, for example apps/v1"))
	}
	if w.Kind == "" {
		ch.refuse(field.Required(at.Child("kind"), "must be the kind of a workload, for example Deployment"))
	}
	ch.selector(w.Selector, at.Child("selector"))
	if w.Name != "" && !ch.refuseLong(w.Name, at.Child("name")) {
		if problems := validation.IsDNS1123Subdomain(w.Name); len(problems) > 0 {
			ch.refuse(field.Invalid(at.Child("name"), w.Name, "must be the name of a workload: "+problems[0]))
		}
	}
	version, known := fleet.ListedVersion(w.Kind)
	switch {
	case w.APIVersion == "" || w.Kind == "" || known && w.APIVersion == version:
	case known && w.Name == "":
		ch.refuse(field.Invalid(at.Child("apiVersion"), w.APIVersion, "must be "+version+" for kind "+w.Kind+"; another kind of that name needs a name"))
	case w.Name == "":
		ch.refuse(field.Required(at.Child("name"), "must name the workload: only Deployment, StatefulSet and DaemonSet of apps/v1 and CronJob of batch/v1 can be selected without a name"))
	case w.Selector != nil:
		ch.refuse(field.Forbidden(at.Child("selector"), "a "+truncate(w.Kind)+" is found by its name: leave out the selector"))
	}
}

func truncate(text string) string {
	if len(text) > maxQuoted {
		return strings.ToValidUTF8(text[:maxQuoted], "") + "..."
	}
	return text
}

func (ch *policyCheck) metadata(entries map[string]string, at *field.Path, value func(string) []string) {
	if len(entries) > maxMetadata {
		ch.refuse(field.TooMany(at, len(entries), maxMetadata))
		return
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		size += len(key) + len(entries[key])
		if ch.refuseLong(key, at) {
			continue
		}
		switch problems := validation.IsQualifiedName(strings.ToLower(key)); {
		case len(problems) > 0:
			ch.refuse(field.Invalid(at, key, "must be a key such as example.com/owner: "+problems[0]))
		case key == corev1.LastAppliedConfigAnnotation:
			ch.refuse(field.Invalid(at, key, "must not be set: kubectl writes it"))
		case strings.HasPrefix(key, ownPrefix):
			ch.refuse(field.Invalid(at, key, "must not begin with "+ownPrefix+", which is reserved for Loadline; set a recipe in spec.recipe"))
		}
		if value == nil || ch.refuseLong(entries[key], at.Key(truncate(key))) {
			continue
		}
		if problems := value(entries[key]); len(problems) > 0 {
			ch.refuse(field.Invalid(at.Key(truncate(key)), entries[key], problems[0]))
		}
	}
	if size > maxMetadataBytes {
		ch.refuse(field.TooLong(at, "", maxMetadataBytes))
	}
}

func (ch *policyCheck) rollout(r *loadlinev1alpha1.Rollout, at *field.Path) {
	oneOf(ch, at.Child("mode"), r.Mode, loadlinev1alpha1.RolloutModeInherit, loadlinev1alpha1.RolloutModeObserve, loadlinev1alpha1.RolloutModeRecommend,
		loadlinev1alpha1.RolloutModeOneShot, loadlinev1alpha1.RolloutModeCanary, loadlinev1alpha1.RolloutModeAuto)
	canary := r.Mode != nil && *r.Mode == loadlinev1alpha1.RolloutModeCanary
	if canary && (r.Canary == nil || r.Canary.Percentage == nil) {
		ch.refuse(field.Required(at.Child("canary", "percentage"), "must be the percentage of pods to change first in mode Canary, for example 10"))
	}
	if c := r.Canary; c != nil {
		if n := c.Percentage; n != nil && (*n < 1 || *n > 100) {
			ch.refuse(field.Invalid(at.Child("canary", "percentage"), *n, "must be from 1 to 100"))
		}
		ch.observation(c.ObservationPeriod, at.Child("canary", "observationPeriod"))
	}
	oneOf(ch, at.Child("method"), r.Method, loadlinev1alpha1.RolloutMethodInPlaceOnly, loadlinev1alpha1.RolloutMethodInPlaceOrRecreate)
	if r.Cooldown != nil && r.Cooldown.Duration < 0 {
		ch.refuse(field.Invalid(at.Child("cooldown"), r.Cooldown.Duration.String(), "must not be negative; 0s: no pause"))
	}
	if r.MinHistory != nil && r.MinHistory.Duration < 0 {
		ch.refuse(field.Invalid(at.Child("minHistory"), r.MinHistory.Duration.String(), "must not be negative; 0s: any history is enough"))
	}
	if r.MinHistory != nil && HistorySteps[HistoryStep(r.MinHistory.Duration)].From != r.MinHistory.Duration {
		ch.warn("%s: %s is reached when the condition SufficientHistory reports the next of 1h, 6h, 24h, 48h, 96h and 192h", at.Child("minHistory"), r.MinHistory.Duration)
	}
	if n := r.MaxConcurrent; n != nil && *n < 0 {
		ch.refuse(field.Invalid(at.Child("maxConcurrent"), *n, "must not be negative; 0: no limit"))
	}
	if n := r.StartRate; n != nil && *n < 0 {
		ch.refuse(field.Invalid(at.Child("startRate"), *n, "must not be negative; 0: no limit"))
	}
	if r.Schedule != nil {
		ch.schedule(r.Schedule, at.Child("schedule"))
	}
	oneOf(ch, at.Child("initialSizing"), r.InitialSizing, loadlinev1alpha1.InitialSizingOff, loadlinev1alpha1.InitialSizingTarget)
	oneOf(ch, at.Child("hpa"), r.HPA, loadlinev1alpha1.HPALeaveOut, loadlinev1alpha1.HPAProceed)
}

func (ch *policyCheck) observation(period *metav1.Duration, at *field.Path) {
	if period != nil && period.Duration < minObservation {
		ch.refuse(field.Invalid(at, period.Duration.String(), "must be at least 1m"))
	}
}

func (ch *policyCheck) schedule(s *loadlinev1alpha1.Schedule, at *field.Path) {
	if n := len(s.Windows); n > maxWindows {
		ch.refuse(field.TooMany(at.Child("windows"), n, maxWindows))
	}
	for i, w := range s.Windows[:min(len(s.Windows), maxWindows)] {
		ch.window(w, at.Child("windows").Index(i))
	}
	for i := range s.DaysOfWeek {
		if i >= maxProblems {
			break
		}
		oneOf(ch, at.Child("daysOfWeek").Index(i), &s.DaysOfWeek[i], days...)
	}
	if s.Timezone != nil && !knownZone(*s.Timezone) {
		ch.refuse(field.Invalid(at.Child("timezone"), *s.Timezone, "must be the name of a zone of the IANA time zone database, for example Europe/Berlin or UTC"))
	}
}

func (ch *policyCheck) window(w loadlinev1alpha1.Window, at *field.Path) {
	readable := true
	for _, edge := range []struct{ name, text string }{{"start", w.Start}, {"end", w.End}} {
		if _, err := rollout.ParseClock(edge.text); err != nil {
			readable = false
			ch.refuse(field.Invalid(at.Child(edge.name), edge.text, "must be a time of the day as HH:MM, from 00:00 to 23:59"))
		}
	}
	if readable && w.Start == w.End {
		ch.refuse(field.Invalid(at.Child("end"), w.End, "must differ from start; for the whole day leave out windows"))
	}
}

var days = []loadlinev1alpha1.DayOfWeek{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

// knownZone rejects the local zone, because it differs between the nodes of the programs.
func knownZone(name string) bool {
	if name == "" || len(name) > maxZoneBytes || name == time.Local.String() {
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

var fraction = regexp.MustCompile(`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`)

func (ch *policyCheck) safety(s *loadlinev1alpha1.Safety, at *field.Path) {
	ch.observation(s.ObservationPeriod, at.Child("observationPeriod"))
	if n := s.Restarts; n != nil && *n < 1 {
		ch.refuse(field.Invalid(at.Child("restarts"), *n, "must be at least 1; set autoRevert: false to disable reverts"))
	}
	for _, share := range []struct {
		name string
		text *string
	}{{"throttle", s.Throttle}, {"pressure", s.Pressure}} {
		if share.text != nil && !fraction.MatchString(*share.text) {
			ch.refuse(field.Invalid(at.Child(share.name), *share.text, `must be a decimal from 0 to 1 in quotes, for example "0.5"; "0" switches it off`))
		}
	}
}

func (ch *policyCheck) sharing(spec *loadlinev1alpha1.SizingPolicySpec, at *field.Path) {
	s := spec.Sharing
	oneOf(ch, at.Child("mode"), s.Mode, loadlinev1alpha1.SharingOff, loadlinev1alpha1.SharingDryRun, loadlinev1alpha1.SharingOn)
	if readSharing(s).Mode != fleet.SharingOff {
		ch.sharingRecipe(spec.Recipe, at.Child("mode"))
	}
	for i := range s.Resources {
		if i >= maxProblems {
			break
		}
		oneOf(ch, at.Child("resources").Index(i), &s.Resources[i], corev1.ResourceCPU, corev1.ResourceMemory)
	}
	oneOf(ch, at.Child("cpuLimit"), s.CPULimit, loadlinev1alpha1.SharingCPULimitKeep, loadlinev1alpha1.SharingCPULimitRemove, loadlinev1alpha1.SharingCPULimitNodeAllocatable)
	oneOf(ch, at.Child("nodeAutoscaler"), s.NodeAutoscaler, loadlinev1alpha1.SharingNodeAutoscalerDryRun, loadlinev1alpha1.SharingNodeAutoscalerAccept)
	oneOf(ch, at.Child("userVPAs"), s.UserVPAs, loadlinev1alpha1.SharingUserVPAsOverride, loadlinev1alpha1.SharingUserVPAsRestrict)
	oneOf(ch, at.Child("maxEvictionRanking"), (*string)(s.MaxEvictionRanking), sharing.RankNames()...)
}

func (ch *policyCheck) sharingRecipe(text *string, at *field.Path) {
	if text == nil || *text == "" {
		ch.warn("%s: sharing requires a recipe with sharing support, and spec.recipe names none: only VPAs with the annotation %s share", at, recipe.Annotation)
		return
	}
	if r, err := recipe.Parse(*text); err == nil && r.Sharing == nil {
		ch.warn("%s: pods with the recipe %q do not share: use a recipe with sharing support, such as cruisekube", at, truncate(*text))
	}
}

func oneOf[T ~string](ch *policyCheck, at *field.Path, value *T, known ...T) {
	if value != nil && !slices.Contains(known, *value) {
		ch.refuse(field.NotSupported(at, truncate(string(*value)), known))
	}
}
