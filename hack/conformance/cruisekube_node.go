package main

import (
	"fmt"
	"time"

	"loadline.dev/loadline/hack/conformance/vectors"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/sharing"
)

const (
	perCore     = 1000 // millicores
	perMegabyte = 1e6  // bytes
)

// storedRanks are the ranks by their numbers in the cases.
var storedRanks = map[int]sharing.Rank{1: sharing.Never, 2: sharing.High, 3: sharing.Medium, 4: sharing.Low}

// manyReplicas is high enough that the number of replicas has no influence.
const manyReplicas = 2

type nodeContainer struct {
	Name                  string
	CPUP75, CPUPeak       float64
	CPUP75PSIAdjusted     *float64
	MemoryP75, MemoryPeak float64
	OOMMemory             float64
	CurrentCPU            float64
	CurrentMemory         float64
}

type nodePod struct {
	Name, Kind          string
	Rank                int
	RankOverride        *int
	ExcludedAnnotation  bool
	InitCPU, InitMemory float64
	Containers          []nodeContainer
}

type sharedNode struct {
	AvailableCPU, AvailableMemory float64
	Pods                          []nodePod
}

type sharedContainer struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
}

type dividedNode struct {
	EvictedInOrder []string                   `json:"evictedInOrder"`
	Final          map[string]sharedContainer `json:"final"`
	HeadroomCPU    float64                    `json:"headroomCPU"`
	HeadroomMemory float64                    `json:"headroomMemory"`
}

func amountsOf(cores, megabytes float64) sharing.Amounts {
	return sharing.Amounts{resources.CPU: cores * perCore, resources.Memory: megabytes * perMegabyte}
}

// shareNode shares a node. Requests of pods that do not share reduce the available resources.
func shareNode(in sharedNode) (out dividedNode, err error) {
	n := &sharing.Node{Kinds: bothKinds, Available: amountsOf(in.AvailableCPU, in.AvailableMemory)}
	for i := range in.Pods {
		p := &in.Pods[i]
		facts := sharingFacts()
		if facts.Excluded = p.ExcludedAnnotation; sharing.IneligibleReason(facts) == "" {
			pod, err := p.sharing()
			if err != nil {
				return out, err
			}
			n.Pods = append(n.Pods, pod)
			continue
		}
		for _, c := range p.Containers {
			n.Available[resources.CPU] -= c.CurrentCPU * perCore
			n.Available[resources.Memory] -= c.CurrentMemory * perMegabyte
		}
	}
	result := sharing.Shares(n, sharing.Rule{Pooling: sharing.LargestHeadroom})
	out = dividedNode{
		EvictedInOrder: []string{}, Final: map[string]sharedContainer{},
		HeadroomCPU: result.Headroom[resources.CPU] / perCore, HeadroomMemory: result.Headroom[resources.Memory] / perMegabyte,
	}
	for _, i := range result.Evictions {
		out.EvictedInOrder = append(out.EvictedInOrder, n.Pods[i].Name)
	}
	for i, shares := range result.Shares {
		for c, share := range shares {
			out.Final[n.Pods[i].Name+"/"+n.Pods[i].Containers[c].Name] = sharedContainer{share[resources.CPU] / perCore, share[resources.Memory] / perMegabyte}
		}
	}
	return out, nil
}

func (p *nodePod) sharing() (pod sharing.Pod, err error) {
	stored := vectors.ValueOr(p.RankOverride, p.Rank)
	rank, known := storedRanks[stored]
	if !known {
		return pod, fmt.Errorf("input: rank %d", stored)
	}
	pod = sharing.Pod{Name: p.Name, Daemon: p.Kind == "DaemonSet", Init: amountsOf(p.InitCPU, p.InitMemory)}
	var problem string
	if pod.Rank, problem = sharing.RankOf(p.Kind, manyReplicas, map[string]string{sharing.RankAnnotation: rank.String()}); problem != "" {
		return pod, fmt.Errorf("input: %s", problem)
	}
	for _, c := range p.Containers {
		// The recipe raises base and peak to the memory of an out-of-memory kill.
		pod.Containers = append(pod.Containers, sharing.Container{
			Name: c.Name,
			Base: amountsOf(vectors.ValueOr(c.CPUP75PSIAdjusted, c.CPUP75), max(c.MemoryP75, c.OOMMemory)),
			Peak: amountsOf(c.CPUPeak, max(c.MemoryPeak, c.OOMMemory)),
		})
	}
	return pod, nil
}

var bothKinds = [resources.Kinds]bool{true, true}

func sharingFacts() sharing.PodFacts {
	return sharing.PodFacts{Shared: bothKinds, Recommended: true, Age: sharing.MinAge}
}

type optimizableOutput struct {
	Optimizable bool `json:"optimizable"`
}

func optimizable(in eligibleInput) (out optimizableOutput, err error) {
	f := sharingFacts()
	switch in.Pod {
	case "ordinary":
	case "excluded namespace", "excluded annotation on the template":
		f.Excluded = true
	case "no statistics":
		f.Recommended = false
	case "requests equal limits for every container":
		f.Guaranteed = true
	case "disabled by override":
		f.Off, _ = sharing.OptedOut(map[string]string{sharing.SharingAnnotation: "off"})
	case "workload younger than one hour":
		f.Age = sharing.MinAge - time.Second
	case "HPA on CPU":
		f.HPA[resources.CPU] = true
	default:
		return out, fmt.Errorf("input: pod %q", in.Pod)
	}
	return optimizableOutput{sharing.IneligibleReason(f) == ""}, nil
}

type rankInput struct {
	Kind           string
	MedianReplicas int
}

type rankOutput struct {
	Rank int `json:"rank"`
}

func defaultRank(in rankInput) (out rankOutput, err error) {
	rank, _ := sharing.RankOf(in.Kind, in.MedianReplicas)
	for stored, r := range storedRanks {
		if r == rank {
			out.Rank = stored
		}
	}
	return out, nil
}
