package model

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

func TestVPA_PodNames(t *testing.T) {
	m, _ := newModel(Config{})
	m.SyncVPAs([]Observed{newObserved("v", "x", 1), newObserved("none", "y", 1)}, now())
	m.PutPod(aPod("p2", labels.Set{"app": "x", "v": "1"}, "a"), now())
	m.PutPod(aPod("p1", labels.Set{"app": "x", "v": "2"}, "a"), now())
	m.PutPod(aPod("p3", labels.Set{"app": "z"}, "a"), now())
	require.Equal(t, []string{"p1", "p2"}, m.Find("ns", "v").PodNames())
	require.Equal(t, "app=x", m.Find("ns", "v").Selector())
	require.Empty(t, m.Find("ns", "none").PodNames())
	require.Empty(t, (&VPA{}).Selector())
}
