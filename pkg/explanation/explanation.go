// Package explanation holds the JSON API through which the programs explain recommendations and
// pods to the plugin.
//
// Explain evaluates a recipe for one container and keeps each step. Handler serves explanations of
// single objects on the metrics port.
package explanation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/core/resources"
)

// Paths of the API.
const (
	VPAPath   = "/explain/vpa"   // of the recommender
	PodPath   = "/explain/pod"   // of the updater
	SkipsPath = "/explain/skips" // of the updater
)

// VPA explains the recommendation of a VPA.
type VPA struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Recipe     Recipe      `json:"recipe"`
	Held       string      `json:"held,omitempty"` // why targets are not lowered
	Containers []Container `json:"containers"`     // sorted by name
}

// Recipe is the recipe of a VPA and its origin.
type Recipe struct {
	Name    string        `json:"name"`
	Source  recipe.Source `json:"source"`
	Text    string        `json:"text,omitempty"` // of the annotation or the policy, if it is valid
	Problem string        `json:"problem,omitempty"`
}

// NewRecipe describes a choice.
func NewRecipe(c *recipe.Choice) Recipe {
	r := Recipe{Name: c.Name, Source: c.Source, Problem: c.Problem}
	if r.Problem == "" { // an invalid text has no maximum length
		r.Text = c.Text
	}
	return r
}

// Container explains the recommendation of a container.
type Container struct {
	Name       string    `json:"name"`
	LastSample time.Time `json:"lastSample,omitzero"`
	CPU        Resource  `json:"cpu"`
	Memory     Resource  `json:"memory"`
	// Incomplete is set if the recipe needs data that is missing, apart from histograms.
	Incomplete   bool   `json:"incomplete,omitempty"`
	MemoryGrowth string `json:"memoryGrowth,omitempty"`
	// MinimumCPU, in millicores, counts as minimum usage if the CPU limit was too low for bursts.
	MinimumCPU float64 `json:"minimumCPU,omitempty"`
	// MemoryLimitRatio is the declared memory limit divided by the request, 0 without one, set if
	// limits do not follow requests. The upper bound is then the amount that a limit protects.
	MemoryLimitRatio *float64                             `json:"memoryLimitRatio,omitempty"`
	Published        *vpav1.RecommendedContainerResources `json:"published,omitempty"`
}

// Resource explains the bounds of CPU, in millicores, or of memory, in bytes.
type Resource struct {
	Target     []Step  `json:"target"`
	LowerBound []Step  `json:"lowerBound"`
	UpperBound []Step  `json:"upperBound"`
	Points     *Points `json:"points,omitempty"` // of recipes that need a minimum number
}

// Points counts five-minute points: existing ones, and the number that a recommendation needs.
type Points struct {
	Have int `json:"have"`
	Want int `json:"want"`
}

// Step is the amount after a step of a recipe.
type Step struct {
	Step   string  `json:"step"`
	Amount float64 `json:"amount"`
}

// Resource returns the part for a kind.
func (c *Container) Resource(k resources.Kind) *Resource {
	if k == resources.CPU {
		return &c.CPU
	}
	return &c.Memory
}

// Explain explains the recommendation of a recipe for an input. It also returns the recommendation.
func Explain(name string, r *recipe.Recipe, in recipe.Input) (Container, recipe.Result) {
	c, result, steps := Container{Name: name}, r.Recommend(in), r.Explain(in)
	if in.Profile != nil {
		c.LastSample = in.Profile.Last()
	}
	for k := range resources.Kind(resources.Kinds) {
		*c.Resource(k) = Resource{Target: stepsOf(steps.Target[k]), LowerBound: stepsOf(steps.Lower[k]), UpperBound: stepsOf(steps.Upper[k])}
		if p := result.Points[k]; p.Want > 0 {
			c.Resource(k).Points = &Points{p.Have, p.Want}
		}
	}
	if !r.Needs.Any() {
		return c, result
	}
	ratio := 0.0
	if s := in.Sketch; s == nil {
		c.Incomplete = true
	} else {
		_, cpu := s.Coverage(resources.CPU)
		_, memory := s.Coverage(resources.Memory)
		c.Incomplete, c.MinimumCPU = !cpu && !memory, s.ThrottledDemand()
		if s.Peaks != nil {
			if g := s.Peaks.Growth(); g.Days > 0 {
				c.MemoryGrowth = g.String()
			}
		}
		ratio, _ = s.LimitRatio.Ratio()
	}
	if r.SeparateMemoryLimit {
		c.MemoryLimitRatio = &ratio
	}
	return c, result
}

// Published returns the published recommendation for a container of a VPA, or nil.
func Published(v *vpav1.VerticalPodAutoscaler, container string) *vpav1.RecommendedContainerResources {
	if v.Status.Recommendation == nil {
		return nil
	}
	list := v.Status.Recommendation.ContainerRecommendations
	if i := slices.IndexFunc(list, func(c vpav1.RecommendedContainerResources) bool { return c.ContainerName == container }); i >= 0 {
		return &list[i]
	}
	return nil
}

// stepsOf returns steps with amounts that JSON can represent.
func stepsOf(values []recipe.Value) []Step {
	steps := make([]Step, len(values))
	for i, v := range values {
		if steps[i] = Step(v); math.IsNaN(v.Amount) || math.IsInf(v.Amount, 0) {
			steps[i].Amount = float64(resources.FromFloat(v.Amount))
		}
	}
	return steps
}

// Skips holds the UIDs of skipped pods by reason.
type Skips struct {
	Reasons map[reason.Reason][]string `json:"reasons"`
}

const (
	answerTimeout = 5 * time.Second
	// workDivisor is the divisor of the time in which answers are computed, because any pod can
	// request them and they delay the loop.
	workDivisor = 10
	// maxPause is the maximum pause after an answer. An answer includes the wait for the loop.
	maxPause = 10 * time.Second
	// maxQuery is the maximum length of a query, twice the length with the longest names.
	maxQuery = 1024
)

// Explainer explains objects. The error wraps ErrUnknown for objects that it does not serve.
type Explainer interface {
	Explain(ctx context.Context, namespace, name string) (any, error)
}

// ErrUnknown is the cause of status 404.
var ErrUnknown = errors.New("not served by this program")

// Turns answers one request at a time, in at most a tenth of the time. NewTurns creates it.
type Turns chan struct{}

// NewTurns returns Turns.
func NewTurns() Turns { return make(Turns, 1) }

// Answer writes the result of compute as JSON. The status is 404 for ErrUnknown, and 503 for
// ErrNotReady or without a turn within five seconds.
func (t Turns) Answer(w http.ResponseWriter, r *http.Request, compute func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	text, err := t.compute(ctx, compute)
	switch {
	case errors.Is(err, ErrUnknown):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, ErrNotReady):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		http.Error(w, "busy: try again", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}
}

func (t Turns) compute(ctx context.Context, compute func(context.Context) (any, error)) ([]byte, error) {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	defer func() { time.AfterFunc(min((workDivisor-1)*time.Since(began), maxPause), func() { <-t }) }()
	answer, err := compute(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// Handler answers GET ?namespace=NAMESPACE&name=NAME, one explanation at a time.
type Handler struct {
	explainer atomic.Pointer[Explainer]
	turns     Turns
}

// NewHandler returns a Handler that answers with status 503 until Serve is called.
func NewHandler() *Handler { return &Handler{turns: NewTurns()} }

// Serve sets the explainer.
func (h *Handler) Serve(e Explainer) { h.explainer.Store(&e) }

// Stop makes the handler answer with status 503.
func (h *Handler) Stop() { h.explainer.Store(nil) }

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, fmt.Sprintf("method %.10q: must be GET", r.Method), http.StatusMethodNotAllowed)
		return
	}
	if n := len(r.URL.RawQuery); n > maxQuery {
		http.Error(w, fmt.Sprintf("query: has %d bytes, must have at most %d, such as namespace=default&name=web", n, maxQuery), http.StatusRequestURITooLong)
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		http.Error(w, "query: must have the form namespace=default&name=web", http.StatusBadRequest)
		return
	}
	namespace, name := query.Get("namespace"), query.Get("name")
	if err := errors.Join(check("namespace", namespace, "default", validation.ValidateNamespaceName),
		check("name", name, "web", validation.NameIsDNSSubdomain)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.explainer.Load() == nil {
		http.Error(w, ErrNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	h.turns.Answer(w, r, func(ctx context.Context) (any, error) {
		e := h.explainer.Load()
		if e == nil {
			return nil, ErrNotReady
		}
		answer, err := (*e).Explain(ctx, namespace, name)
		if err != nil {
			err = fmt.Errorf("%s/%s: %w", namespace, name, err)
		}
		return answer, err
	})
}

// ErrNotReady is the error of a replica that does not explain yet.
var ErrNotReady = errors.New("this replica does not lead, or its first iteration has not ended")

func check(parameter, value, example string, validate validation.ValidateNameFunc) error {
	problems := validate(value, false)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s=%.80q: must be the %s of an object, such as %s=%s", parameter, value, parameter, parameter, example)
}
