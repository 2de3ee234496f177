package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// PodMetrics reads the usage of pods from the metrics API (metrics.k8s.io).
type PodMetrics struct {
	client    *rest.RESTClient
	namespace string
}

// NewPodMetrics returns a source for the server of config. An empty namespace means all.
func NewPodMetrics(config *rest.Config, namespace string) (*PodMetrics, error) {
	client, err := Raw(config, "metrics.k8s.io")
	if err != nil {
		return nil, err
	}
	return &PodMetrics{client: client, namespace: namespace}, nil
}

// Samples sends one request and calls yield for each sample, even before an error in the response.
func (s *PodMetrics) Samples(ctx context.Context, yield func(usage.Sample)) error {
	body, err := s.client.Get().NamespaceIfScoped(s.namespace, s.namespace != "").Resource("pods").Stream(ctx)
	if err != nil {
		return fmt.Errorf("list pod metrics (metrics.k8s.io): %w", err)
	}
	err = decodePodMetrics(body, yield)
	if closed := body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("read pod metrics (metrics.k8s.io): %w", err)
	}
	return nil
}

// podMetrics decodes one item. PodMetrics of k8s.io/metrics takes five times the allocations, see
// docs/dependencies.md.
type podMetrics struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Timestamp  time.Time `json:"timestamp"`
	Containers []struct {
		Name  string `json:"name"`
		Usage struct {
			CPU    string `json:"cpu"`
			Memory string `json:"memory"`
		} `json:"usage"`
	} `json:"containers"`
}

// decodePodMetrics yields the samples of a PodMetricsList, rounded up. A negative amount becomes
// -1, which the store rejects, and an invalid quantity is skipped. Invalid pods cause an error
// after all other samples. Other input fails at once.
func decodePodMetrics(r io.Reader, yield func(usage.Sample)) error {
	d := json.NewDecoder(r)
	if err := expectToken(d, json.Delim('{')); err != nil {
		return err
	}
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if key == "items" {
			found = true
			if err := podItems(d, yield); err != nil {
				return err
			}
			continue
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	if !found {
		return errors.New("response has no items: want a PodMetricsList")
	}
	return expectToken(d, json.Delim('}'))
}

// podItems accepts null as an empty list.
func podItems(d *json.Decoder, yield func(usage.Sample)) error {
	start, err := d.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("items is %v: want a list", start)
	}
	var pod podMetrics
	var last error
	unusable := 0
	for d.More() {
		pod = podMetrics{} // a reused slice would carry values over from the pod before
		switch err := d.Decode(&pod); {
		case err == nil:
			eachContainer(&pod, yield)
		case isValueError(err):
			unusable++
			last = fmt.Errorf("pod %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
		default:
			return err
		}
	}
	if err := expectToken(d, json.Delim(']')); err != nil || last == nil {
		return err
	}
	return fmt.Errorf("%d pods of the response cannot be decoded, such as %w", unusable, last)
}

// isValueError reports whether only a value is invalid. The decoder can continue after it.
func isValueError(err error) bool {
	var kind *json.UnmarshalTypeError
	var instant *time.ParseError
	return errors.As(err, &kind) || errors.As(err, &instant)
}

func expectToken(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("response has %v, want %v of a PodMetricsList", token, want)
	}
	return nil
}

func eachContainer(pod *podMetrics, yield func(usage.Sample)) {
	for i := range pod.Containers {
		container := &pod.Containers[i]
		texts := [resources.Kinds]string{resources.CPU: container.Usage.CPU, resources.Memory: container.Usage.Memory}
		for k := range resources.Kind(resources.Kinds) {
			used, err := resource.ParseQuantity(texts[k])
			if err != nil {
				continue
			}
			yield(usage.Sample{
				Container: usage.ContainerKey{Namespace: pod.Metadata.Namespace, Pod: pod.Metadata.Name, Container: container.Name},
				Kind:      k,
				At:        pod.Timestamp,
				Amount:    convert.MeasuredAmount(k, used),
			})
		}
	}
}
