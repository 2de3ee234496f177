package target

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

var (
	jan1 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	top  = Key{Namespace: "default", Kind: "Deployment", Name: "d"}
	appA = map[string]string{"app": "a"}
)

func selecting(app string) labels.Selector { return labels.SelectorFromSet(labels.Set{"app": app}) }

// counting is a selector that matches nothing and counts its calls.
type counting func()

func (c counting) Matches(labels.Labels) bool { c(); return false }

func vpa(name string, days int) Claim {
	return Claim{Namespace: "default", Name: name, TargetKind: "Deployment", TargetName: "d", Created: jan1.AddDate(0, 0, days), Selector: selecting("a")}
}

func controlling(t *testing.T, top Key, all ...Claim) string {
	t.Helper()
	var x Claims
	for _, v := range all {
		x.Put(v)
	}
	found, ok := x.Controlling(top, appA)
	require.Equal(t, ok, found.Name != "")
	return found.Name
}

func TestClaims_OldestVPAControls(t *testing.T) {
	require.Equal(t, "old", controlling(t, top, vpa("young", 2), vpa("old", 1), vpa("middle", 1).with(func(v *Claim) { v.Created = v.Created.Add(time.Hour) })))
}

func (v Claim) with(change func(*Claim)) Claim {
	change(&v)
	return v
}

func TestClaims_SmallerNameBreaksTie(t *testing.T) {
	require.Equal(t, "a", controlling(t, top, vpa("b", 1), vpa("a", 1), vpa("c", 1)))
}

func TestClaims_IdleVPAComesLast(t *testing.T) {
	idle := func(v *Claim) { v.Idle = true }
	require.Equal(t, "young", controlling(t, top, vpa("old", 1).with(idle), vpa("young", 2)))
	require.Equal(t, "young", controlling(t, top, vpa("young", 2), vpa("old", 1).with(idle)))
	require.Equal(t, "old", controlling(t, top, vpa("young", 2).with(idle), vpa("old", 1).with(idle)))
}

func TestClaims_OnlyVPAsOfController(t *testing.T) {
	for _, tc := range []struct {
		name  string
		other Claim
	}{
		{name: "other namespace", other: vpa("x", 0).with(func(v *Claim) { v.Namespace = "ns2" })},
		{name: "other target", other: vpa("x", 0).with(func(v *Claim) { v.TargetName = "e" })},
		{name: "other kind", other: vpa("x", 0).with(func(v *Claim) { v.TargetKind = "StatefulSet" })},
		{name: "other API group", other: vpa("x", 0).with(func(v *Claim) { v.TargetVersion = "example.com/v1" })},
		{name: "unknown selector", other: vpa("x", 0).with(func(v *Claim) { v.Selector = nil })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, "mine", controlling(t, top, tc.other, vpa("mine", 5)))
			require.Empty(t, controlling(t, top, tc.other))
		})
	}
	require.Empty(t, controlling(t, Key{}, vpa("mine", 5)))
}

func TestClaims_PutReplacesAndRemoveDeletes(t *testing.T) {
	var x Claims
	x.Remove("default", "never there")
	x.Put(vpa("a", 1))
	x.Put(vpa("a", 1).with(func(v *Claim) { v.TargetName = "e" }))
	require.Equal(t, 1, x.Len())
	_, found := x.Controlling(top, appA)
	require.False(t, found, "the VPA points elsewhere now")
	x.Remove("default", "a")
	require.Zero(t, x.Len())
	_, found = x.Strongest(Key{Namespace: "default", Kind: "Deployment", Name: "e"})
	require.False(t, found)
}

func TestClaims_OrderOfArrivalIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Claim
		for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 30), 1, 8, rapid.ID[int]).Draw(t, "names") {
			all = append(all, vpa(string(rune('a'+n)), rapid.IntRange(0, 2).Draw(t, "days")))
		}
		var x, y Claims
		for _, v := range all {
			x.Put(v)
		}
		for _, v := range rapid.Permutation(all).Draw(t, "order") {
			y.Put(v)
		}
		first, _ := x.Controlling(top, appA)
		second, _ := y.Controlling(top, appA)
		require.Equal(t, first.Name, second.Name)
		for _, v := range all {
			require.GreaterOrEqual(t, CompareClaims(v, first), 0)
		}
	})
}

// Users can create any number of VPAs with one target.
func TestClaims_EvaluateOnlyStrongestOfTarget(t *testing.T) {
	var x Claims
	asked := map[string]int{}
	for i := range 1000 {
		name := fmt.Sprintf("v%d", i)
		x.Put(vpa(name, i).with(func(v *Claim) { v.Selector = counting(func() { asked[name]++ }) }))
	}
	_, found := x.Controlling(top, appA)
	require.False(t, found, "all of them select the same pods")
	require.Equal(t, map[string]int{"v0": 1}, asked)
	clear(asked)
	x.Remove("default", "v0")
	x.Controlling(top, appA)
	require.Equal(t, map[string]int{"v1": 1}, asked)
}

func TestClaims_MatchReferencesLikeAPIServer(t *testing.T) {
	custom := Key{Namespace: "default", Group: "apps.example.com", Kind: "StatefulSet", Name: "d"}
	ref := func(apiVersion, kind string) Claim {
		return vpa("x", 0).with(func(v *Claim) { v.TargetVersion, v.TargetKind = apiVersion, kind })
	}
	for _, tc := range []struct {
		name  string
		claim Claim
		top   Key
		want  bool
	}{
		{name: "a current version", claim: ref("apps/v1", "Deployment"), top: top, want: true},
		{name: "an old version", claim: ref("apps/v1beta1", "Deployment"), top: top, want: true},
		{name: "an old group", claim: ref("extensions/v1beta1", "Deployment"), top: top, want: true},
		{name: "no version", claim: ref("", "Deployment"), top: top, want: true},
		{name: "a kind in lower case", claim: ref("apps/v1", "deployment"), top: top},
		{name: "the kind of another group", claim: ref("apps.example.com/v1", "Deployment"), top: top},
		{name: "a custom resource", claim: ref("apps.example.com/v1beta1", "StatefulSet"), top: custom, want: true},
		{name: "another version of it", claim: ref("apps.example.com/v1", "StatefulSet"), top: custom, want: true},
		{name: "the built-in kind of that name", claim: ref("apps/v1", "StatefulSet"), top: custom},
		{name: "a node", claim: ref("v1", "Node"), top: NewKey("default", "v1", "Node", "d")},
		{name: "a custom resource of the kind Node", claim: ref("example.com/v1", "Node"), top: NewKey("default", "example.com/v1", "Node", "d"), want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, controlling(t, tc.top, tc.claim) == "x")
		})
	}
}

func TestController_NodeOwnsNothing(t *testing.T) {
	owner := func(apiVersion string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Node", Name: "n", Controller: new(true)}}
	}
	_, owned := Controller("default", owner("v1"))
	require.False(t, owned, "a static pod")
	key, owned := Controller("default", owner("example.com/v1"))
	require.True(t, owned, "a custom resource of that kind")
	require.True(t, key.Custom())
}
