package compat

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

const longest = 45

// live appends iterations at random intervals, with pod starts and stops, usage and OOM kills
// between them. A simple history has one pod for each VPA and never restarts.
func (d *dice) live(step time.Duration, simple bool) {
	for i := range d.vpas {
		if d.chance(0.8) {
			d.add(event{kind: changes, vpa: i})
		}
	}
	for i := range d.vpas {
		d.start(i, simple)
	}
	for range 5 + d.Intn(longest-4) {
		d.now += time.Duration((0.5 + d.Float64()) * float64(step))
		if !simple {
			d.turnOver()
		}
		for i := range d.pods {
			d.sample(&d.pods[i], step)
		}
		d.kill()
		if v := d.Intn(len(d.vpas)); d.chance(0.1) {
			d.add(event{kind: changes, vpa: v, version: d.Intn(len(d.vpas[v].versions))})
		}
		d.add(event{kind: passes, cleans: d.chance(0.2), saves: d.chance(0.15)})
		if !simple && d.chance(0.04) {
			d.add(event{kind: restarts, crossed: d.chance(0.5)})
		}
	}
	for i := range d.vpas {
		d.add(event{kind: changes, vpa: i}) // VPAs that do not exist yet
	}
	d.add(event{kind: passes, saves: true})
	if !simple {
		d.add(event{kind: restarts})
		d.add(event{kind: passes, saves: true})
	}
}

func (d *dice) add(e event) {
	e.at = d.now
	d.list = append(d.list, e)
}

func (d *dice) turnOver() {
	if d.chance(0.15) {
		d.start(d.Intn(len(d.vpas)), false)
	}
	if len(d.pods) > 0 && d.chance(0.08) {
		i := d.Intn(len(d.pods))
		d.add(event{kind: vanishes, pod: d.pods[i].event.pod})
		d.pods = slices.Delete(d.pods, i, i+1)
	}
}

// start adds a pod with labels of its release, or with unique ones, without controller labels such
// as pod-template-hash: Loadline merges histories that differ only in these, and upstream does not.
func (d *dice) start(vpa int, simple bool) {
	d.made++
	e := event{
		kind: appears, vpa: vpa,
		pod:    fmt.Sprintf("%s-%d", d.vpas[vpa].name, d.made),
		labels: labels.Set{"app": d.vpas[vpa].name, "release": fmt.Sprint(d.made / 4)},
		names:  containers[:1+d.Intn(len(containers))],
	}
	if !simple && d.chance(0.3) {
		e.labels["pod"] = e.pod
	}
	d.add(e)
	d.pods = append(d.pods, alive{e, d.lognormal(1), map[string]time.Duration{}})
}

func (d *dice) sample(p *alive, step time.Duration) {
	for _, name := range p.event.names {
		at := d.now - time.Duration(d.Int63n(int64(step)))
		switch last, again := p.last[name]; {
		case again && d.chance(0.05):
			at = last // the metrics API returns the same sample again
		case again && d.chance(0.05):
			at = last - time.Duration(d.Int63n(int64(2*step)))
		case d.chance(0.5):
			at = at.Truncate(time.Second) // as in the metrics API
		}
		p.last[name] = at
		e := event{kind: uses, vpa: p.event.vpa, pod: p.event.pod, container: name, sampled: at}
		if d.chance(0.95) {
			e.resource, e.amount = model.ResourceCPU, d.value(200*p.scale)
			d.add(e)
		}
		if d.chance(0.9) {
			e.resource, e.amount = model.ResourceMemory, d.value(4e8*p.scale)
			d.add(e)
		}
	}
}

func (d *dice) value(median float64) int64 {
	switch {
	case d.chance(0.03):
		return 0
	case d.chance(0.01):
		return int64(1e6 * median)
	case d.chance(0.01):
		return -1
	}
	return int64(d.lognormal(median))
}

func (d *dice) kill() {
	if len(d.pods) == 0 || !d.chance(0.1) {
		return
	}
	p := d.pods[d.Intn(len(d.pods))]
	d.add(event{
		kind: killed, vpa: p.event.vpa, pod: p.event.pod, container: one(d, p.event.names...), resource: model.ResourceMemory,
		sampled: d.now - time.Duration(d.Int63n(int64(one(d, time.Minute, time.Hour, 48*time.Hour)))),
		amount:  max(one(d, 0, d.value(5e8*p.scale)), 0), // requests are not negative
	})
}
