package source

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// valueList is what is read of an ExternalMetricValueList.
type valueList struct {
	Items *[]json.RawMessage `json:"items"`
}

type value struct {
	Labels    map[string]string `json:"metricLabels"`
	Timestamp time.Time         `json:"timestamp"`
	Value     string            `json:"value"`
}

// DecodeExternal reads the answer to the question for one kind of one pod. The label
// names the container; values without it are left out. Amounts are rounded up;
// a negative one becomes -1, so that the store rejects and counts it. A value that
// cannot be read is an error, beside the samples of the others.
func DecodeExternal(text []byte, pod ExternalPod, k resources.Kind, label string) ([]usage.Sample, error) {
	var list valueList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if list.Items == nil {
		return nil, fmt.Errorf("the answer has no items: is it an ExternalMetricValueList?")
	}
	var samples []usage.Sample
	var last error
	for _, item := range *list.Items {
		var v value
		if err := json.Unmarshal(item, &v); err != nil {
			last = err
			continue
		}
		container := v.Labels[label]
		if container == "" {
			continue
		}
		q, err := resource.ParseQuantity(v.Value)
		if err != nil || v.Timestamp.IsZero() {
			last = fmt.Errorf("container %s has the value %q at %s", container, v.Value, v.Timestamp)
			continue
		}
		a := resources.Amount(-1)
		if q.Sign() >= 0 {
			a = convert.Amount(k, q)
		}
		samples = append(samples, usage.Sample{
			Container: usage.ContainerKey{Namespace: pod.Namespace, Pod: pod.Name, Container: container},
			Kind:      k, At: v.Timestamp.UTC(), Amount: a,
		})
	}
	return samples, last
}
