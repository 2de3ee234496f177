package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/client"
)

// ExternalConfig says what is asked for.
type ExternalConfig struct {
	Metrics        [resources.Kinds]string // names, by kind; empty = not asked for
	ContainerLabel string                  // metric label with the name of the container
	// Pods yields the pods whose usage matters until yield returns false.
	Pods func(yield func(ExternalPod) bool)
}

// ExternalPod is a pod and the text of a selector that selects it.
type ExternalPod struct{ Namespace, Name, Selector string }

// External asks for the metrics of one pod after the other.
type External struct {
	client *rest.RESTClient
	config ExternalConfig
}

const (
	workers   = 8 // requests at the same time
	maxErrors = 3 // that an error names
)

// NewExternal returns a source that asks the server of config, with a rate limit of its
// own.
func NewExternal(config *rest.Config, c ExternalConfig) (*External, error) {
	client, err := client.Raw(config, "external.metrics.k8s.io")
	if err != nil {
		return nil, err
	}
	return &External{client: client, config: c}, nil
}

// question is for one metric of one pod.
type question struct {
	number int
	pod    ExternalPod
	kind   resources.Kind
}

type reply struct {
	question
	samples []usage.Sample
	err     error
}

// Samples asks for all pods and calls yield, from this goroutine, for each
// sample. Questions that fail are one error, after the samples of the others.
func (s *External) Samples(ctx context.Context, yield func(usage.Sample)) error {
	questions, replies := make(chan question), make(chan reply)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for q := range questions {
				samples, err := s.ask(ctx, q)
				replies <- reply{q, samples, err}
			}
		})
	}
	list := s.questions()
	go func() {
		for _, q := range list {
			questions <- q
		}
		close(questions)
		working.Wait()
		close(replies)
	}()
	var failed []reply
	for r := range replies {
		for _, sample := range r.samples {
			yield(sample)
		}
		if r.err != nil {
			failed = append(failed, r)
		}
	}
	return s.failure(failed, len(list))
}

// failure names the first questions that failed.
func (s *External) failure(failed []reply, asked int) error {
	if len(failed) == 0 {
		return nil
	}
	slices.SortFunc(failed, func(a, b reply) int { return a.number - b.number })
	var errs []error
	for _, r := range failed[:min(len(failed), maxErrors)] {
		errs = append(errs, fmt.Errorf("%s of pod %s/%s: %w", s.config.Metrics[r.kind], r.pod.Namespace, r.pod.Name, r.err))
	}
	return fmt.Errorf("%d of %d external metrics cannot be read, such as %w", len(failed), asked, errors.Join(errs...))
}

// questions lists what to ask before the asking begins: it runs in the goroutine
// of the caller, to whom the pods belong.
func (s *External) questions() []question {
	var list []question
	for pod := range s.config.Pods {
		for k, metric := range s.config.Metrics {
			if metric != "" {
				list = append(list, question{len(list), pod, resources.Kind(k)})
			}
		}
	}
	return list
}

func (s *External) ask(ctx context.Context, q question) ([]usage.Sample, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	selector := "pod=" + q.pod.Name
	if q.pod.Selector != "" {
		selector = strings.Join([]string{q.pod.Selector, selector}, ",")
	}
	text, err := s.client.Get().Namespace(q.pod.Namespace).Resource(s.config.Metrics[q.kind]).Param("labelSelector", selector).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return DecodeExternal(text, q.pod, q.kind, s.config.ContainerLabel)
}
