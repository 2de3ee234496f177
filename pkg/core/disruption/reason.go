package disruption

// Reason is why a pod is left alone. The set is closed: metrics, logs and docs
// name each of them. The empty Reason means that nothing speaks against a change.
type Reason string

// The reasons, by the file that finds them first, and after the semicolon the file that reads
// what it looks at: with both, one knows why. The table below says what each means, and plan.vpa
// in which order the plan asks. What has changed since the plan was made is found while it is
// carried out: ModeOff, StatusOutdated, VPAUnreadable and those of a SizingPolicy by
// view.Reader.Stopped, those of a rollout once more by pass.admit (updater/rollouts.go), RestartUnderWay by
// updater/actuate/cluster.go, which asks budgets.go beside it.
const (
	// updater/view/assign.go, before a plan is made, TargetUnreadable memo.go beside it;
	// pkg/kube/target/claims.go, owners resolver.go beside it
	NoVPA            Reason = "NoVPA"
	OwnerUnreadable  Reason = "OwnerUnreadable"
	TargetUnreadable Reason = "TargetUnreadable"
	VPAUnreadable    Reason = "VPAUnreadable"

	// pkg/core/fleet/set.go, for the SizingPolicy of a VPA; pkg/kube/sizing/sizing.go
	OptedOut      Reason = "OptedOut"
	PolicyUnknown Reason = "PolicyUnknown"
	PolicyPaused  Reason = "PolicyPaused"
	Observing     Reason = "Observing"
	RecommendOnly Reason = "RecommendOnly"

	// updater/view/policy.go, NoRecord and EvictionNotAllowed also updater/rollouts.go, and EvictionNotAllowed
	// staysPut in plan.go; updater/records/store.go
	EvictionNotAllowed Reason = "EvictionNotAllowed"
	JobNotResized      Reason = "JobNotResized"
	NoRecord           Reason = "NoRecord"

	// pkg/core/rollout/round.go, which updater/rollouts.go asks before a plan is made (those of nodes:
	// checks.go beside it; HPAOnResource and KeptAfterRevert: updater/view/policy.go); OutsideWindow and
	// UnderObservation also updater/rollouts.go itself, UnderObservation of what shares updater/view/divide.go;
	// updater/view/workload.go. round.go also finds RolloutUnderWay and TooLargeForNode under a
	// policy, and canary.go beside it NotRunning, WaitingForNode and Deferred
	NotInCanary      Reason = "NotInCanary"
	CoolingDown      Reason = "CoolingDown"
	OutsideWindow    Reason = "OutsideWindow"
	UnderObservation Reason = "UnderObservation"
	Halted           Reason = "Halted"
	FuseTripped      Reason = "FuseTripped"
	StartRate        Reason = "StartRate"
	ShortHistory     Reason = "ShortHistory"
	HPAOnResource    Reason = "HPAOnResource"
	KeptAfterRevert  Reason = "KeptAfterRevert"
	NodePressure     Reason = "NodePressure"
	NodeUnknown      Reason = "NodeUnknown"

	// plan.go, BackingOff of a resize that was asked for in vain inplace.go; state.go and backoff.go
	// remember, updater/view/assign.go reads owners and their rollouts
	ModeOff         Reason = "ModeOff"
	StatusOutdated  Reason = "StatusOutdated"
	RolloutUnderWay Reason = "RolloutUnderWay"
	BackingOff      Reason = "BackingOff"
	Stabilizing     Reason = "Stabilizing"

	// assess.go; pkg/convert/running.go, which asks policy.Fit what the pod would get
	Boosted            Reason = "Boosted"
	NoRecommendation   Reason = "NoRecommendation"
	PodLevelResources  Reason = "PodLevelResources"
	Unchanged          Reason = "Unchanged"
	OutsideLimitRange  Reason = "OutsideLimitRange"
	TooYoung           Reason = "TooYoung"
	SmallChange        Reason = "SmallChange"
	RequirementsNotMet Reason = "RequirementsNotMet"

	// protect.go; pkg/convert/protect.go for the signs on the pod, pkg/kube/target/replacement.go for
	// its owner, which updater/view/protect.go queries
	ProtectedFromEviction Reason = "ProtectedFromEviction"
	CountsAsFailure       Reason = "CountsAsFailure"
	OlderRevision         Reason = "OlderRevision"

	// decide.go, WaitingForNode also inplace.go and, in mode Recreate, plan.go;
	// pkg/convert/running.go, owners updater/view/assign.go
	ModeNotEnabled   Reason = "ModeNotEnabled"
	NotRunning       Reason = "NotRunning"
	WaitingForNode   Reason = "WaitingForNode"
	Deferred         Reason = "Deferred"
	Infeasible       Reason = "Infeasible"
	ResizeFailed     Reason = "ResizeFailed"
	NoOwner          Reason = "NoOwner"
	BelowMinReplicas Reason = "BelowMinReplicas"
	NoBudget         Reason = "NoBudget"
	BudgetSpent      Reason = "BudgetSpent"

	// inplace.go (for an eviction plan.go), which ask capacity.go, class.go for ClassWouldChange and
	// StaticCPU, and restart_plan.go for RestartUnderWay; StaticCPU of a boosted pod assess.go;
	// updater/view/capacity.go, for StaticCPU static_cpu.go beside it, for RestartUnderWay
	// updater/actuate/budgets.go
	ClassWouldChange Reason = "ClassWouldChange"
	StaticCPU        Reason = "StaticCPU"
	QuotaFull        Reason = "QuotaFull"
	NodeFull         Reason = "NodeFull"
	TooLargeForNode  Reason = "TooLargeForNode"
	RestartUnderWay  Reason = "RestartUnderWay"

	// updater/view/divide.go, of a pod that shares what its node has left, HasShare updater/loop.go in
	// place of Unchanged and NoRecommendation; updater/view/sharing.go
	HasShare       Reason = "HasShare"
	ShrunkLately   Reason = "ShrunkLately"
	ChangedOutside Reason = "ChangedOutside"

	// plan.go, of a pod that leaves its node; state.go remembers
	LeftLately Reason = "LeftLately"

	// updater/pass.go, while the plan is carried out; updater/actuate/cluster.go, for MemoryInUse
	// spare.go and memory.go beside it
	DisruptionRateLimited Reason = "DisruptionRateLimited"
	RateLimited           Reason = "RateLimited"
	MemoryInUse           Reason = "MemoryInUse"
	ResizeRefused         Reason = "ResizeRefused"
	PodChanged            Reason = "PodChanged"
	NotRecordable         Reason = "NotRecordable"
	EvictionRefused       Reason = "EvictionRefused"
	WriteLimit            Reason = "WriteLimit"

	// updater/actuate/check.go, right before an eviction; StaleCache and BudgetTooLarge also before a resize that restarts
	// a container, by pkg/kube/client/freshness.go
	ReplacementRefused   Reason = "ReplacementRefused"
	ReplacementUnchanged Reason = "ReplacementUnchanged"
	ReplacementUnknown   Reason = "ReplacementUnknown"
	StaleCache           Reason = "StaleCache"
	BudgetTooLarge       Reason = "BudgetTooLarge"

	// a panic, anywhere
	Broken Reason = "Broken"
)

// Explanation is what people read of a reason, in Markdown.
type Explanation struct {
	Reason Reason
	Means  string // a clause: why the pod is left alone
	Advice string // what to do
	// Acute reasons need somebody to do something. The others pass by themselves, or are
	// what was asked for.
	Acute bool
}

// explanations are the one table of reasons: docs/reasons.md, events and
// kubectl loadline are made of it. Logs have the reason alone.
var explanations = []Explanation{
	{NoVPA, "no VPA that changes running pods controls it",
		"if one should: its `targetRef` must name the topmost controller of the pod, and its mode must not be `Off` or `Initial`; such pods are only counted, and logged at level 6", false},
	{OwnerUnreadable, "one of the controllers above it cannot be read, so it is not known which VPA controls it",
		"the log says at level 3 which one, and why; see whether it exists, and whether the updater may get its scale subresource", true},
	{TargetUnreadable, "the target of its VPA cannot be read, has no label selector of its own, or one of more than 100 requirements or 8 KiB",
		"the log says at level 3 why; check `spec.targetRef`", true},
	{VPAUnreadable, "a field of its VPA cannot be read",
		"correct the VPA; the log says which field", true},
	{OptedOut, "an annotation takes the workload out of its SizingPolicy",
		"nothing, or remove `loadline.dev/skip` from the workload, its pod template and its VPA", false},
	{PolicyUnknown, "its VPA was made for a SizingPolicy, and none that can be read selects the workload any more; or the one that does cannot be used",
		"look at the conditions of the policy, and whether the updater may list `sizingpolicies` and `namespaces`; where the policy was deleted on purpose, nothing", true},
	{PolicyPaused, "its SizingPolicy is paused",
		"nothing, or `spec.paused: false`", false},
	{Observing, "the mode of its SizingPolicy is `Observe`, or an annotation reduces it to that",
		"nothing, or choose another `spec.rollout.mode`", false},
	{RecommendOnly, "the mode of its SizingPolicy is `Recommend`, or an annotation reduces it to that",
		"nothing, or choose another `spec.rollout.mode`", false},
	{EvictionNotAllowed, "its VPA only evicts, or it is to leave a crowded node, and its SizingPolicy or its VPA does not allow that now",
		"`spec.rollout.method: InPlaceOrRecreate` in the policy, which evicts in mode `Auto` and after a canary; or a mode of the VPA that resizes", false},
	{JobNotResized, "it is a pod of a Job, which a SizingPolicy sizes only when it is created",
		"nothing", false},
	{NoRecord, "the SizingRecord of its workload cannot be read or written, so nobody would know what was done before",
		"see whether the definition of `sizingrecords` is installed, and whether the updater may list, watch, create and update them; the log has the error", true},
	{NotInCanary, "other pods of its workload are tried first",
		"wait until the canary is promoted; `kubectl loadline explain` says what is in the way", false},
	{CoolingDown, "the last round of changes of its workload ended a short time ago",
		"wait until the time that the SizingRecord names; `spec.rollout.cooldown`, doubled for each round in a row that was taken back", false},
	{OutsideWindow, "the schedule of its SizingPolicy does not allow changes now",
		"wait, or see `spec.rollout.schedule`: a zone that does not exist is never open", false},
	{UnderObservation, "it was changed and is not judged yet, or as many pods of its workload as may be at once",
		"wait for the end of the observation; `spec.rollout.maxConcurrent`", false},
	{Halted, "changes of its workload were taken back again and again",
		"find out from the SizingRecord what harms the pods; the rollout begins anew when the recommendation or the policy changes", true},
	{FuseTripped, "too many rounds of its SizingPolicy were reverted within an hour, so the policy changes no further pod, or none in the namespace",
		"find out what did harm (`kubectl get sizings -A`), then acknowledge it with the command in condition `FuseTripped` of the policy: `kubectl annotate --overwrite sizingpolicy NAME loadline.dev/acknowledge=TIME`", false}, // one event for the policy, none for each workload
	{StartRate, "its SizingPolicy has changed no pod of its workload yet, and starts few workloads in an hour",
		"wait; the number doubles each hour; `spec.rollout.startRate`, 10 by default, 0 for no limit", false},
	{ShortHistory, "its recommendation rests on less usage than its SizingPolicy requires before it changes pods",
		"wait; the condition `SufficientHistory` of the VPA reports how much there is; `spec.rollout.minHistory`, 1h by default", false},
	{HPAOnResource, "a HorizontalPodAutoscaler looks at the resource that would change",
		"nothing, or `spec.rollout.hpa: Proceed`, or let the HorizontalPodAutoscaler look at something else", false},
	{KeptAfterRevert, "less did harm and was taken back, so it keeps what did well before",
		"nothing; it is tried again when the recommendation is higher, the policy changes, or after seven days", false},
	{NodePressure, "its node is short of memory, disk or process IDs, so it must not grow there",
		"see the conditions of the node", false},
	{NodeUnknown, "its node cannot be read, so it must not grow there",
		"see whether the node exists, and whether the updater may list nodes", true},
	{ModeOff, "the mode of the VPA changes no running pods; or the VPA was deleted, or got another mode, after the plan was made",
		"nothing, or choose another mode", false},
	{StatusOutdated, "the target of the VPA changed, or may have changed while the updater was not there, and what is recommended is for the spec before",
		"wait for a pass of the recommender; if it lasts, see whether that runs, serves this VPA and writes `status.observedGeneration`", true},
	{RolloutUnderWay, "the workload is being rolled out, and the change would evict a ready pod or restart it; under a SizingPolicy any change of a ready pod, also while fewer pods are available than the workload wants",
		"wait until the rollout is done, has failed, or is paused; under a policy see why pods are not available", false},
	{BackingOff, "earlier changes had no effect: new pods came back without them or with a part of them, or the same resize was asked for in vain",
		"see whether the admission controller is reached, whether it cuts the pods to what a quota leaves, and what else changes them; the pause doubles from 5 minutes to 12 hours, and ends as soon as a new pod has its size; of a resize asked for in vain, from 1 to 30 minutes", true},
	{Stabilizing, "the change would undo the last one too soon",
		"wait; if sizes go back and forth, see which two VPAs or recommenders disagree; `--stabilization-window`", false},
	{Boosted, "it has extra CPU while it starts, which is taken back first",
		"wait until it is ready and the time of the boost is over", false},
	{NoRecommendation, "the VPA recommends nothing for its containers",
		"look at the conditions of the VPA", false},
	{PodLevelResources, "`spec.resources` of the pod bounds its containers; they are not sized alone",
		"take CPU and memory out of `spec.resources` of the pod template", true},
	{Unchanged, "the pod has what it would get",
		"nothing", false},
	{OutsideLimitRange, "a LimitRange would refuse the recommended size",
		"change the LimitRange, or `minAllowed` and `maxAllowed`", true},
	{TooYoung, "within the recommended bounds, and not old enough",
		"wait 12 hours, or lower `--in-recommendation-bounds-eviction-lifetime-threshold`", false},
	{SmallChange, "within the bounds, and the change is below the threshold",
		"nothing, or lower `--pod-update-threshold`", false},
	{RequirementsNotMet, "only an eviction or a restart could change it, and `evictionRequirements` of the VPA do not hold",
		"check them, or use `InPlaceOrRecreate`: a resize that restarts nothing needs no requirement", false},
	{ProtectedFromEviction, "only an eviction or a restart could change it, and an annotation of the pod forbids evictions",
		"nothing, or remove the annotation; `docs/updater.md` lists the annotations; the next pod gets the new size", false},
	{CountsAsFailure, "only an eviction or a restart could change it, and its owner counts an evicted pod as a failed one: a Job whose `podFailurePolicy` does not ignore `DisruptionTarget`, or another controller of pods that run to completion",
		"nothing: the next pod gets the new size; or use `InPlaceOrRecreate`; or a rule of the Job's `podFailurePolicy` with action `Ignore` for the condition `DisruptionTarget`", false},
	{OlderRevision, "only an eviction could change it, and the pod that replaces it would run another revision of the workload: one that waits for the deletion of pods (`OnDelete`, or a ReplicaSet without a Deployment), is held back by a `partition`, or is being rolled out",
		"finish the rollout, or use `InPlaceOrRecreate`", false},
	{ModeNotEnabled, "mode `InPlace` without its gate",
		"`--feature-gates=InPlace=true`", true},
	{NotRunning, "the pod is pending and cannot be resized",
		"see why it does not start", false},
	{WaitingForNode, "a resize is under way, or accepted and not acted on yet",
		"wait, or look at the kubelet", false},
	{Deferred, "the node has no room now",
		"make room; `InPlaceOrRecreate` evicts after 5 minutes", true},
	{Infeasible, "the node can never grant it (mode `InPlace` only)",
		"a larger node, a lower `maxAllowed`, or `InPlaceOrRecreate`", true},
	{ResizeFailed, "the node tried and failed (mode `InPlace`; in `InPlaceOrRecreate` for up to an hour, when it could not take memory that is in use)",
		"the pod's condition `PodResizeInProgress` says why", true},
	{NoOwner, "the owner is gone, is unknown, or wants no replicas",
		"check the owner references and replicas", true},
	{BelowMinReplicas, "fewer live pods than the minimum",
		"`updatePolicy.minReplicas: 1`, or `--in-place-skip-disruption-budget`", true},
	{NoBudget, "too few pods are there to spare one",
		"get the pods ready, or raise `--eviction-tolerance`", true},
	{BudgetSpent, "other pods of its owner are away for their change, or more urgent ones go first",
		"wait for the next pass", false},
	{ClassWouldChange, "a resize would change the QoS class of the pod, and the mode allows no eviction",
		"give the pod template requests for CPU and memory, and with `RequestsOnly` limits above its requests; or lower a `minAllowed` that equals the limit; or use `InPlaceOrRecreate`", true},
	{StaticCPU, "its node has the static CPU manager policy and gives a pod of class Guaranteed no other CPU in place, and the mode allows no eviction, or a new pod would only have its startup boost again",
		"use `InPlaceOrRecreate`, or give the containers limits above their requests; no startup boost for such pods; `--static-cpu-nodes`", true},
	{QuotaFull, "a ResourceQuota leaves too little for the recommended size",
		"raise the quota, or lower `maxAllowed`; in mode `Recreate` also for a pod that is to shrink: `InPlaceOrRecreate` needs no room for that", true},
	{NodeFull, "no node has room for the recommended size now; for a resize its own node",
		"make room or add a node; `InPlaceOrRecreate` looks for another node after 5 minutes; `--cap-to-room` gives what there is; where nodes are added and the updater sees no sign of it (its log says so), `--eviction-room=size` or `off`", true},
	{TooLargeForNode, "no node is large enough for the recommended size; for a resize its own node",
		"a larger node, or a lower `maxAllowed`", true},
	{RestartUnderWay, "another pod of its owner, or of one of its PodDisruptionBudgets, is being restarted by a resize",
		"wait until that pod is ready again; one that never is, or whose node never carries the resize out, holds the others for an hour", true},
	{HasShare, "it shares what its node has left, and has its share, or keeps what it has until the next round",
		"nothing; `docs/sharing.md` says who shares, and when", false},
	{ShrunkLately, "it shares what its node has left; the pods of a node are made smaller once an hour at most, unless one came that has its peak yet or one waits for what they would give, and where nodes are added and removed even then",
		"wait", false},
	{ChangedOutside, "it shares what its node has left, and somebody has changed its requests since the last round",
		"wait for the next round, five minutes at most", false},
	{LeftLately, "it is to leave its node, where pods that share need more than there is, and less than an hour ago another pod of its owner left for that",
		"wait; if pods leave again and again, add a node", false},
	{DisruptionRateLimited, "many pods are due at once, and this one has to wait for its turn",
		"wait, or raise `--eviction-pace` and `--namespace-eviction-pace`", false},
	{RateLimited, "the rate limit or the time of the pass ended before its turn",
		"wait; if it stays so, raise `--eviction-rate-limit` and `--eviction-rate-burst`, and check how long the API server takes to answer", false},
	{MemoryInUse, "the pod uses so much memory that no cut of its limit is worth a resize",
		"see whether the pod should use so much; if so nothing: the recommendation follows the usage", true},
	{ResizeRefused, "the API server refused the resize, or could not be asked",
		"the log has its answer at level 2", true},
	{PodChanged, "the pod was resized, or a note on it changed, since it was read, so the plan for it is outdated",
		"nothing: the next iteration plans with its present sizes", false},
	{NotRecordable, "the pod has so many containers under observation that a further change cannot be noted on it",
		"wait until the change under observation has been judged", true},
	{EvictionRefused, "the eviction, or a resize that would restart the pod, was refused, mostly by a PodDisruptionBudget",
		"check the budget; the next pass tries again", true},
	{WriteLimit, "its namespace has used the updater's write limit; more memory after an out-of-memory kill uses a reserve, and reverts do not wait",
		"wait; the limit grows with the running pods of the namespace; see which objects are large or change often (`docs/security.md`, Writes for one namespace)", true},
	{ReplacementRefused, "the API server would refuse the pod that replaces it",
		"the event on the VPA has the cause: change the admission policy or webhook, the quota or the LimitRange, or limit the recommendation with `minAllowed`, `maxAllowed` and `controlledValues`; checked again after 5 minutes, then less often, up to once an hour", true},
	{ReplacementUnchanged, "admission would give the pod that replaces it none of the recommended sizes",
		"another admission webhook or policy sets the resources after Loadline's: exempt the workload there, or set the mode of the VPA to `Off`; checked again after 5 minutes, then less often, up to once an hour", true},
	{ReplacementUnknown, "it could not be checked whether the API server accepts the pod that replaces it",
		"the event on the VPA has the cause; see whether the API server and its admission webhooks answer, and whether the updater may create pods", true},
	{StaleCache, "a watch has received nothing for three minutes, so the updater may not know the present state",
		"see whether the API server and the proxies in front of it answer watches; `loadline_updater_cache_age_seconds` shows which resource", true},
	{BudgetTooLarge, "only an eviction or a restart could change it, and its namespace has a PodDisruptionBudget with a label selector of more than 100 requirements or 8 KiB, which is not evaluated: it counts as one that selects the pod and allows no disruption",
		"shorten the selector, or delete the budget; the log has its name at level 2", true},
	{Broken, "the pod or its VPA made our code panic; all others are served",
		"report the stack in the log", true},
}

// String returns the name that metrics, logs and docs use.
func (r Reason) String() string { return string(r) }

// Reasons returns all reasons in the order of their declaration.
func Reasons() (all []Reason) {
	for _, e := range explanations {
		all = append(all, e.Reason)
	}
	return all
}

// explained finds the explanation of a reason.
var explained = func() map[Reason]Explanation {
	found := make(map[Reason]Explanation, len(explanations))
	for _, e := range explanations {
		found[e.Reason] = e
	}
	return found
}()

// Explain returns what the reason means; the zero value for one that does not exist.
func (r Reason) Explain() Explanation { return explained[r] }

// Cause is why a pod is changed.
type Cause string

// The causes.
const (
	Changed     Cause = "Changed"     // it has run for long enough and would change enough
	OutOfBounds Cause = "OutOfBounds" // a request is outside the recommended bounds
	OutOfMemory Cause = "OutOfMemory" // a container ran out of memory soon after its start
	ResizeStuck Cause = "ResizeStuck" // a resize did not come about, so the pod is evicted
	Retry       Cause = "Retry"       // a resize did not come about, so another target is asked for
	BoostOver   Cause = "BoostOver"   // its startup boost is over
	BoostMissed Cause = "BoostMissed" // it was created before the webhook knew its VPA, so it has no startup boost

	// Of pods that share what their node has left.
	Shared        Cause = "Shared"        // its share has changed
	ShareEnded    Cause = "ShareEnded"    // it shares no more, and gets its peak
	ShareReverted Cause = "ShareReverted" // its share did harm, so it gets its peak
	NodeCrowded   Cause = "NodeCrowded"   // those that share its node need more than there is
	MemoryRefused Cause = "MemoryRefused" // it ran out of memory that it shares, and its node refuses it more
)

// Shares reports whether the change is one of sharing. It is part of no rollout.
func (c Cause) Shares() bool {
	switch c {
	case Shared, ShareEnded, ShareReverted, NodeCrowded, MemoryRefused:
		return true
	}
	return false
}
