package model

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

func names(seq iter.Seq2[string, []usage.Series]) (list []string) {
	for name := range seq {
		list = append(list, name)
	}
	return list
}

func publish(v *VPA, at time.Time) {
	v.ChooseContainers(at)
	v.Published.Uncapped = map[string]resources.List{}
	for name := range v.Recommended() {
		v.Published.Uncapped[name] = resources.List{}
	}
}

func TestChooseContainers_CyclingNamesDoNotAccumulate(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	v, at := m.Find("ns", "v"), now()
	var last []string
	for i := range 30 {
		last = nil
		for c := range 100 {
			last = append(last, fmt.Sprintf("c-%02d-%02d", 99-i, c))
		}
		pod := fmt.Sprint("p", i)
		m.PutPod(aPod(pod, labels.Set{"app": "x"}, last...), at)
		publish(v, at)
		require.Subset(t, names(v.Recommended()), last, "running containers come first")
		require.LessOrEqual(t, len(names(v.Recommended())), MaxContainers)
		require.LessOrEqual(t, len(names(v.Kept())), MaxContainers)
		require.Equal(t, i > 2, v.OmittedMessage() != "")
		m.RemovePod("ns", pod)
		at = at.Add(time.Minute)
	}
	publish(v, at)
	require.Subset(t, names(v.Recommended()), last, "scaled to zero")

	m.PutPod(aPod("last", labels.Set{"app": "x"}, last...), at)
	publish(v, at)
	publish(v, at.Add(Grace))
	require.Equal(t, last, names(v.Recommended()))
	require.Len(t, names(v.Kept()), MaxContainers)
	require.True(t, v.Keeps(last[0]))
	require.Empty(t, v.OmittedMessage())
}

func TestChooseContainers_ChangesRevision(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	v := m.Find("ns", "v")
	m.PutPod(aPod("p1", labels.Set{"app": "x"}, "a"), now())
	m.PutPod(aPod("p2", labels.Set{"app": "x"}, "b"), now())
	publish(v, now())
	m.RemovePod("ns", "p1")
	publish(v, now())
	before := v.Revision()
	publish(v, now().Add(Grace-time.Second))
	require.Equal(t, before, v.Revision())
	publish(v, now().Add(Grace))
	require.NotEqual(t, before, v.Revision())
	require.Equal(t, []string{"b"}, names(v.Recommended()))
	require.Equal(t, []string{"a", "b"}, names(v.Kept()))
}

func TestChooseContainers_IncludesFinishedPods(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1)}, now())
	v := m.Find("ns", "v")
	job := func(name, container string, phase corev1.PodPhase) {
		p := aPod(name, labels.Set{"app": "x"}, container)
		p.Status.Phase = phase
		m.PutPod(p, now())
	}
	job("p1", "a", corev1.PodSucceeded)
	publish(v, now())
	require.Equal(t, []string{"a"}, names(v.Recommended()))
	job("p2", "b", corev1.PodSucceeded)
	publish(v, now())
	require.Equal(t, []string{"a", "b"}, names(v.Recommended()), "it ran between two iterations")
	job("p3", "b", corev1.PodRunning)
	publish(v, now())
	publish(v, now().Add(Grace))
	require.Equal(t, []string{"b"}, names(v.Recommended()))
}

// The limit on histories of deleted pods shrinks with the number of linked VPAs.
func TestVPALimit_LinksCountAsMemory(t *testing.T) {
	m, _ := newModel(Config{})
	var all []Observed
	for i := range 10 * MaxVPAs {
		all = append(all, newObserved(fmt.Sprintf("v%03d", i), "x", 1))
	}
	m.SyncVPAs(all, now())
	for i := range 3000 {
		pod := fmt.Sprint("p", i)
		m.PutPod(aPod(pod, labels.Set{"app": "x", "run": fmt.Sprint(i)}, "a"), now().Add(time.Duration(i)*time.Second))
		m.RemovePod("ns", pod)
	}
	require.LessOrEqual(t, len(m.Find("ns", "v000").sets), maxEndedHistories/(1+10))
	require.Empty(t, m.Find("ns", "v099").Containers())
	require.True(t, m.Find("ns", "v099").Outranked())
	require.False(t, m.Find("ns", "v009").Outranked())
}
