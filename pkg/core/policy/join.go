package policy

import (
	"slices"

	"loadline.dev/loadline/pkg/core/resources"
)

// joined returns p and its result with the containers that have no recommendation for
// kind k moved so that the pod fits its range. Where that does not help, the API server
// refuses the pod anyway, and both are returned as they were. Containers that the user
// wants to be left alone join only if off is true.
func (p *problem) joined(k resources.Kind, off bool, result Result) (*problem, Result) {
	trial, joins := p.clone(), make([]bool, len(p.parts))
	for i := range trial.parts {
		joins[i] = trial.parts[i].join(k, off)
	}
	if !slices.Contains(joins, true) {
		return p, result
	}
	// What they get with the others is theirs from then on, and the others are fitted
	// around it: so does who looks at a pod that has the result.
	together, fixed := trial.stable(), p.clone()
	for i, joined := range joins {
		if joined {
			fixed.parts[i].move(k, together.Containers[i])
		}
	}
	fitted := fixed.stable()
	if fitted.has(Note{k, OutsidePodRange}) || fitted.has(Note{k, OutsideRange}) {
		return p, result
	}
	return fixed, fitted
}

// join makes the request of a container without recommendation for kind k its
// recommendation, and reports whether it has one. The bounds of its rule hold for it.
func (p *part) join(k resources.Kind, off bool) bool {
	request := p.container.Requests.Value(k)
	if request <= 0 || p.given.Target.Has(k) || !off && (p.rule.Off || !p.rule.Controlled[k]) {
		return false
	}
	p.given.Target = p.given.Target.With(k, request)
	return true
}

// move gives the container what f has of kind k.
func (p *part) move(k resources.Kind, f ContainerTarget) {
	if request, ok := f.Requests.Get(k); ok {
		p.moved.Requests, p.container.Requests = p.moved.Requests.With(k, request), p.container.Requests.With(k, request)
	}
	if limit, ok := f.Limits.Get(k); ok {
		p.moved.Limits, p.container.Limits = p.moved.Limits.With(k, limit), p.container.Limits.With(k, limit)
	}
}

// give writes what the container gets without recommendation.
func (p *part) give(f *ContainerTarget) {
	f.Requests, f.Limits = f.Requests.Override(p.moved.Requests), f.Limits.Override(p.moved.Limits)
	for k := range resources.Kind(resources.Kinds) {
		if p.moved.Requests.Has(k) {
			f.Notes = append(f.Notes, Note{k, MovedWithOthers})
		}
	}
}
