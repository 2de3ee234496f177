package target

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	jan1 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	top  = Key{Namespace: "default", Kind: "Deployment", Name: "d"}
	appA = map[string]string{"app": "a"}
)

func selecting(app string) func(map[string]string) bool {
	return func(labels map[string]string) bool { return labels["app"] == app }
}

func vpa(name string, days int) Claim {
	return Claim{Namespace: "default", Name: name, TargetKind: "Deployment", TargetName: "d", Created: jan1.AddDate(0, 0, days), Selects: selecting("a")}
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

func TestTheOldestVPAControls(t *testing.T) {
	require.Equal(t, "old", controlling(t, top, vpa("young", 2), vpa("old", 1), vpa("middle", 1).with(func(v *Claim) { v.Created = v.Created.Add(time.Hour) })))
}

func (v Claim) with(change func(*Claim)) Claim {
	change(&v)
	return v
}

func TestTheSmallerNameBreaksATie(t *testing.T) {
	require.Equal(t, "a", controlling(t, top, vpa("b", 1), vpa("a", 1), vpa("c", 1)))
}

func TestAnIdleVPAComesBehindTheOthers(t *testing.T) {
	idle := func(v *Claim) { v.Idle = true }
	require.Equal(t, "young", controlling(t, top, vpa("old", 1).with(idle), vpa("young", 2)))
	require.Equal(t, "young", controlling(t, top, vpa("young", 2), vpa("old", 1).with(idle)))
	require.Equal(t, "old", controlling(t, top, vpa("young", 2).with(idle), vpa("old", 1).with(idle)))
}

func TestOnlyVPAsOfTheControllerCount(t *testing.T) {
	for name, other := range map[string]Claim{
		"other namespace":  vpa("x", 0).with(func(v *Claim) { v.Namespace = "ns2" }),
		"other target":     vpa("x", 0).with(func(v *Claim) { v.TargetName = "e" }),
		"other kind":       vpa("x", 0).with(func(v *Claim) { v.TargetKind = "StatefulSet" }),
		"other labels":     vpa("x", 0).with(func(v *Claim) { v.TargetVersion, v.Selects = "other", selecting("b") }),
		"unknown selector": vpa("x", 0).with(func(v *Claim) { v.Selects = nil }),
	} {
		require.Equal(t, "mine", controlling(t, top, other, vpa("mine", 5)), name)
		require.Empty(t, controlling(t, top, other), name)
	}
	require.Empty(t, controlling(t, Key{}, vpa("mine", 5)))
}

func TestPutReplacesAndRemoveForgets(t *testing.T) {
	var x Claims
	x.Remove("default", "never there")
	x.Put(vpa("a", 1))
	x.Put(vpa("a", 1).with(func(v *Claim) { v.TargetName = "e" }))
	require.Equal(t, 1, x.Len())
	_, found := x.Controlling(top, appA)
	require.False(t, found, "the VPA points elsewhere now")
	x.Remove("default", "a")
	require.Zero(t, x.Len())
	require.Empty(t, x.Targeting(Key{Namespace: "default", Kind: "Deployment", Name: "e"}))
}

func TestTheOrderOfArrivalDoesNotMatter(t *testing.T) {
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

// Anybody can create any number of VPAs with one target. For each pod one of them is asked.
func TestOfVPAsWithOneTargetTheStrongestIsAsked(t *testing.T) {
	var x Claims
	asked := map[string]int{}
	put := func(name, group string, days int, fits bool) {
		x.Put(vpa(name, days).with(func(v *Claim) {
			v.TargetVersion, v.Selects = group, func(map[string]string) bool { asked[name]++; return fits }
		}))
	}
	for i := range 1000 {
		put(fmt.Sprintf("v%d", i), "apps", i, false)
	}
	put("other", "example.com", 2000, true)
	chosen, found := x.Controlling(top, appA)
	require.True(t, found)
	require.Equal(t, "other", chosen.Name, "of another API version")
	require.Equal(t, map[string]int{"v0": 1, "other": 1}, asked)
	clear(asked)
	x.Remove("default", "v0")
	x.Controlling(top, appA)
	require.Equal(t, map[string]int{"v1": 1, "other": 1}, asked)
	for i := range 50 {
		put(fmt.Sprintf("g%d", i), fmt.Sprint(i), -1, false)
	}
	clear(asked)
	x.Controlling(top, appA)
	require.Len(t, asked, mostVersions)
}
