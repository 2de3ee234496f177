package prometheus

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"loadline.dev/loadline/pkg/core/amount"
	"loadline.dev/loadline/pkg/core/usage"
)

// Usage names the metrics of the usage of containers, and their labels.
type Usage struct {
	CPUMetric    string // counter of seconds
	MemoryMetric string // gauge of bytes
	Job          string // value of the label job; empty = any
	Namespace    string // the only one that matters; empty = all

	NamespaceLabel, PodLabel, ContainerLabel string
}

// CPU returns the query for the use of CPU in cores, as a mean over window.
func (u Usage) CPU(window time.Duration) string {
	return "rate(" + u.CPUMetric + "{" + u.selector() + "}[" + model.Duration(window).String() + "])"
}

// Memory returns the query for the use of memory in bytes.
func (u Usage) Memory() string { return u.MemoryMetric + "{" + u.selector() + "}" }

// Query returns the query for one kind.
func (u Usage) Query(k amount.Kind, window time.Duration) string {
	if k == amount.CPU {
		return u.CPU(window)
	}
	return u.Memory()
}

// selector leaves out what is no container: the sums of pods, and the sandbox.
func (u Usage) selector() string {
	var parts []string
	if u.Job != "" {
		parts = append(parts, "job="+strconv.Quote(u.Job))
	}
	parts = append(parts, u.PodLabel+`=~".+"`, u.ContainerLabel+`!="POD"`, u.ContainerLabel+`!=""`)
	if u.Namespace != "" {
		parts = append(parts, u.NamespaceLabel+"="+strconv.Quote(u.Namespace))
	}
	return strings.Join(parts, ", ")
}

// Container tells which container a series is of, or false if a label is
// missing.
func (u Usage) Container(labels map[string]string) (c usage.ContainerKey, ok bool) {
	c = usage.ContainerKey{Namespace: labels[u.NamespaceLabel], Pod: labels[u.PodLabel], Container: labels[u.ContainerLabel]}
	return c, c.Namespace != "" && c.Pod != "" && c.Container != ""
}

// Amount converts a value of a series, cores or bytes, dropping the fraction. A
// negative one becomes -1, so that the store rejects and counts it.
func Amount(k amount.Kind, value float64) amount.Amount {
	if k == amount.CPU {
		value *= 1000
	}
	if value < 0 {
		return -1
	}
	return amount.FromFloat(value)
}
