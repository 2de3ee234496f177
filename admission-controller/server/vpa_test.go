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
	for _, tc := range []struct{ name, in string }{
		{name: "exponent in minAllowed", in: bound(`"minAllowed":{"cpu":`, `"1e-2147483647"}`)},
		{name: "exponent of a number", in: bound(`"maxAllowed":{"name":`, `1E-2147483647}`)},
		{name: "exponent of a ratio", in: bound(`"oomBumpUpRatio":`, `"0e2147483647"`)},
		{name: "exponent in a startup boost", in: bound(`"startupBoost":{"cpu":{"quantity":`, `"1e-2147483647"}}`)},
		{name: "field name in another case", in: bound(`"MINALLOWED":{"cpu":`, `"1e-2147483647"}`)},
		{name: "field name with an escape", in: bound(`"m\u0069nAllowed":{"cpu":`, `"1e-2147483647"}`)},
		{name: "exponent with leading zeros", in: bound(`"minAllowed":{"cpu":`, `"1e-0002147483647"}`)},
		{name: "too many digits", in: bound(`"minAllowed":{"cpu":`, `"`+strings.Repeat("9", 1000)+`"}`)},
		{name: "exponent in the status",
			in: `{"status":{"recommendation":{"containerRecommendations":[{"target":{"cpu":"1e-2147483647"}}]}}}`},
		{name: "too many policies", in: `{"spec":{"resourcePolicy":{"containerPolicies":[` + strings.Repeat(`{},`, maxParts) + `{}]}}}`},
		{name: "unterminated deep list", in: strings.Repeat(`[`, 1000000)},
		{name: "object too deep", in: deep(`{"x":`, maxDepth+1, `}`)},
		{name: "list too deep", in: `{"x":` + deep(`[`, maxDepth, `]`) + `}`},
		{name: "too many elements of an unknown field", in: `{"x":[` + strings.Repeat(`0,`, maxParts) + `0]}`},
		{name: "too many quantities",
			in: `{"spec":{"resourcePolicy":{"containerPolicies":[{"maxAllowed":{` +
				strings.Repeat(`"cpu":1,`, maxQuantities) + `"cpu":1}}]}}}`},
		{name: "object too large", in: `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", MaxVPABytes) + `"}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorIs(t, CheckVPA([]byte(tc.in)), ErrTooComplex)
		})
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
	for _, tc := range []struct {
		name       string
		one, other string
		want       bool
	}{
		{name: "same spec", one: `{"spec":{"a":1},"status":{}}`, other: `{"metadata":{},"spec":{"a":1}}`, want: true},
		{name: "different spec", one: `{"spec":{"a":1}}`, other: `{"spec":{"a":2}}`, want: false},
		{name: "spec in the metadata", one: `{"spec":{"a":1}}`, other: `{"metadata":{"spec":{"a":1}}}`, want: false},
		{name: "missing spec", one: `{"spec":{"a":1}}`, other: `{}`, want: false},
		{name: "both without spec", one: `{}`, other: `{"metadata":{}}`, want: true},
		{name: "last duplicate wins", one: `{"spec":{"a":1},"spec":{"a":2}}`, other: `{"spec":{"a":2}}`, want: true},
		{name: "deepest spec", one: `{"spec":` + deep(`[`, maxLibraryDepth-2, `]`) + `}`,
			other: `{"spec":` + deep(`[`, maxLibraryDepth-2, `]`) + `}`, want: true},
		{name: "truncated objects", one: `{"spec":{"a":1}`, other: `{"spec":{"a":1}`, want: false},
		{name: "both empty", want: false},
		{name: "other empty", one: `{"spec":{"a":1}}`, want: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, HaveSameSpec([]byte(tc.one), []byte(tc.other)))
		})
	}
}

func TestIsDeleted_ReadsDeletionTimestamp(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   string
		want bool
	}{
		{name: "timestamp before a large spec",
			in:   `{"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"},"spec":{"x":[` + strings.Repeat(`{},`, 2*maxParts) + `{}]}}`,
			want: true},
		{name: "timestamp after a deep spec",
			in: `{"spec":` + deep(`[`, maxLibraryDepth-2, `]`) + `,"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"}}`, want: true},
		{name: "timestamp is null", in: `{"metadata":{"deletionTimestamp":null}}`},
		{name: "no timestamp", in: `{"metadata":{}}`},
		{name: "timestamp outside of metadata", in: `{"spec":{"deletionTimestamp":"x"}}`},
		{name: "second metadata without a timestamp", in: `{"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"},"metadata":{}}`},
		{name: "empty"},
		{name: "truncated object", in: `{"metadata":{"deletionTimestamp":"x"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, IsDeleted([]byte(tc.in)))
		})
	}
}
