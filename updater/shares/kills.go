package shares

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"loadline.dev/loadline/pkg/core/disruption"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
	"loadline.dev/loadline/updater/snapshot"
)

// killedContainer identifies a killed container.
type killedContainer struct {
	pod  types.UID
	name string
}

// killed reports whether a pod gets its memory peak: a container ran out of memory less than sharing.OOMPause ago, or
// the pod has not been ready since. evict reports whether it may be evicted if its node refuses the peak.
func (d *division) killed(v *disruption.VPA, a *aim, p *disruption.Pod) (memory, evict bool) {
	for i := range a.whole {
		c := &a.whole[i]
		if c.OOM.Ended.IsZero() || p.Ready && d.now.Sub(c.OOM.Ended) >= sharing.OOMPause {
			continue
		}
		kill, of := d.kill(v, a, p, c), killedContainer{types.UID(p.UID), c.Actual.Name}
		kill.Recorded = d.kills[of]
		answer := sharing.AfterOOM(kill)
		if answer.Recorded {
			d.record(of, kill.At)
		}
		if answer.Reason == reason.OOMCooling { // the reaction to the previous kill continues, in place
			kill.At = kill.Recorded
			answer = sharing.AfterOOM(kill)
			answer.MayEvict = false
		}
		memory, evict = memory || answer.Reason == "", evict || answer.MayEvict
	}
	return memory, evict
}

// kill returns the input of sharing.AfterOOM for the last kill of a container.
func (d *division) kill(v *disruption.VPA, a *aim, p *disruption.Pod, c *disruption.Container) sharing.OOMKill {
	object, err := d.Pods.Pods(p.Namespace).Get(p.Name)
	kill := sharing.OOMKill{
		At: c.OOM.Ended, Shared: a.kinds[resources.Memory], Gone: err != nil || string(object.UID) != p.UID || object.DeletionTimestamp != nil,
		Recommended: !v.Outdated && a.vpa.Recommendation[c.Actual.Name].Target.Has(resources.Memory),
	}
	if s := a.shared; s != nil {
		kill.Excluded, kill.Off, kill.Rank = s.Apart == reason.Excluded, s.Apart == reason.SharingOff, s.Sharing.Rank
		kill.Evict = a.standing != Ending && s.by != nil && stillWanted(&s.by.VPA, a.policy) && s.by.Settings.Evict && s.node.acts(s)
	}
	return kill
}

// record records a kill until the pod is deleted or the process ends.
func (d *division) record(of killedContainer, at time.Time) {
	if d.kills == nil {
		d.kills = map[killedContainer]time.Time{}
	}
	d.kills[of] = at
}

// forgetKills forgets the kills of pods that are gone.
func (s *Sharing) forgetKills(view *snapshot.View) {
	if len(s.kills) == 0 {
		return
	}
	present := map[types.UID]bool{}
	for _, states := range view.States {
		for _, state := range states {
			present[types.UID(state.UID)] = true
		}
	}
	maps.DeleteFunc(s.kills, func(of killedContainer, _ time.Time) bool { return !present[of.pod] })
}
