package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckVPA_RejectsExpensiveObjects(t *testing.T) {
	bound := func(member, text string) string {
		return `{"metadata":{"name":"1e100000"},"spec":{"targetRef":{"name":"1e100000"},"resourcePolicy":{"containerPolicies":[{"containerName":"1e100000",` + member + text + `}]}}}`
	}
	for name, in := range map[string]string{
		"minimum":           bound(`"minAllowed":{"cpu":`, `"1e-2147483647"}`),
		"a number":          bound(`"maxAllowed":{"name":`, `1E-2147483647}`),
		"ratio":             bound(`"oomBumpUpRatio":`, `"0e2147483647"`),
		"boost":             bound(`"startupBoost":{"cpu":{"quantity":`, `"1e-2147483647"}}`),
		"in another case":   bound(`"MINALLOWED":{"cpu":`, `"1e-2147483647"}`),
		"with an escape":    bound(`"m\u0069nAllowed":{"cpu":`, `"1e-2147483647"}`),
		"leading zeros":     bound(`"minAllowed":{"cpu":`, `"1e-0002147483647"}`),
		"digits":            bound(`"minAllowed":{"cpu":`, `"`+strings.Repeat("9", 1000)+`"}`),
		"in the status":     `{"status":{"recommendation":{"containerRecommendations":[{"target":{"cpu":"1e-2147483647"}}]}}}`,
		"policies":          `{"spec":{"resourcePolicy":{"containerPolicies":[` + strings.Repeat(`{},`, maxParts) + `{}]}}}`,
		"deep":              strings.Repeat(`[`, 1000000),
		"deep object":       deep(`{"x":`, maxDepth+1, `}`),
		"deep list":         `{"x":` + deep(`[`, maxDepth, `]`) + `}`,
		"what is no member": `{"x":[` + strings.Repeat(`0,`, maxParts) + `0]}`,
		"amounts":           `{"spec":{"resourcePolicy":{"containerPolicies":[{"maxAllowed":{` + strings.Repeat(`"cpu":1,`, maxQuantities) + `"cpu":1}}]}}}`,
		"size":              `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", MaxVPABytes) + `"}}}`,
	} {
		require.ErrorIs(t, CheckVPA([]byte(in)), ErrTooComplex, name)
	}
	for _, in := range []string{
		bound(`"minAllowed":{"cpu":`, `"250m"}`), bound(`"minAllowed":{"cpu":`, `"1e3","memory":1E9}`), bound(`"minAllowed":{"memory":`, `"1Ei"}`),
		deep(`{"x":`, maxDepth, `}`), `{"x":` + deep(`[`, maxDepth-1, `]`) + `,"y":[[]]}`,
		`{"status":{"recommendation":{"containerRecommendations":[{"target":{` + strings.Repeat(`"cpu":1,`, maxQuantities-1) + `"cpu":1}}]}}}`,
		`{"metadata":{"labels":{"commit":"12e4567"},"annotations":{"a":"` + strings.Repeat("x", MaxVPABytes/2) + `"}}}`,
		``, `7`, `{"spec":`, `{"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":7}]}}}`, // encoding/json reports the error
	} {
		require.NoError(t, CheckVPA([]byte(in)), in)
	}
}

func TestCheckPolicy_RejectsExpensiveObjects(t *testing.T) {
	sized := func(size int) []byte { return []byte(`{"x":"` + strings.Repeat("x", size-len(`{"x":""}`)) + `"}`) }
	require.NoError(t, CheckPolicy(sized(MaxPolicyBytes)))
	require.ErrorIs(t, CheckPolicy(sized(MaxPolicyBytes+1)), ErrTooComplex)
	require.NoError(t, CheckVPA(sized(MaxPolicyBytes+1)))
	require.ErrorIs(t, CheckPolicy([]byte(`{"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":{"cpu":"1e-2147483647"}}]}}}`)), ErrTooComplex)
}

func TestHaveSameSpec_ComparesRawSpecs(t *testing.T) {
	for _, c := range []struct {
		one, other string
		want       bool
	}{
		{`{"spec":{"a":1},"status":{}}`, `{"metadata":{},"spec":{"a":1}}`, true},
		{`{"spec":{"a":1}}`, `{"spec":{"a":2}}`, false},
		{`{"spec":{"a":1}}`, `{"metadata":{"spec":{"a":1}}}`, false},
		{`{"spec":{"a":1}}`, `{}`, false},
		{`{}`, `{"metadata":{}}`, true},
		{`{"spec":{"a":1},"spec":{"a":2}}`, `{"spec":{"a":2}}`, true}, // the last duplicate wins
		{`{"spec":` + deep(`[`, maxLibraryDepth-2, `]`) + `}`, `{"spec":` + deep(`[`, maxLibraryDepth-2, `]`) + `}`, true},
		{`{"spec":{"a":1}`, `{"spec":{"a":1}`, false},
		{``, ``, false},
		{`{"spec":{"a":1}}`, ``, false},
	} {
		require.Equal(t, c.want, HaveSameSpec([]byte(c.one), []byte(c.other)), "%.50s %.50s", c.one, c.other)
	}
}

func TestIsDeleted_ReadsDeletionTimestamp(t *testing.T) {
	for in, want := range map[string]bool{
		`{"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"},"spec":{"x":[` + strings.Repeat(`{},`, 2*maxParts) + `{}]}}`: true,
		`{"spec":` + deep(`[`, maxLibraryDepth-2, `]`) + `,"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"}}`:           true,
		`{"metadata":{"deletionTimestamp":null}}`: false, `{"metadata":{}}`: false, `{"spec":{"deletionTimestamp":"x"}}`: false,
		`{"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"},"metadata":{}}`: false, ``: false, `{"metadata":{"deletionTimestamp":"x"}`: false,
	} {
		require.Equal(t, want, IsDeleted([]byte(in)), in)
	}
}
