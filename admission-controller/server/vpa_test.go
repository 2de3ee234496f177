package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAVPAThatMustNotBeDecoded(t *testing.T) {
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
		"policies":          `{"spec":{"resourcePolicy":{"containerPolicies":[` + strings.Repeat(`{},`, mostParts) + `{}]}}}`,
		"deep":              strings.Repeat(`[`, 1000000),
		"deep object":       deep(`{"x":`, mostLevels+1, `}`),
		"deep list":         `{"x":` + deep(`[`, mostLevels, `]`) + `}`,
		"what is no member": `{"x":[` + strings.Repeat(`0,`, mostParts) + `0]}`,
		"size":              `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", LargestVPA) + `"}}}`,
	} {
		require.ErrorIs(t, CheckVPA([]byte(in)), ErrTooMuch, name)
	}
	for _, in := range []string{
		bound(`"minAllowed":{"cpu":`, `"250m"}`), bound(`"minAllowed":{"cpu":`, `"1e3","memory":1E9}`), bound(`"minAllowed":{"memory":`, `"1Ei"}`),
		deep(`{"x":`, mostLevels, `}`), `{"x":` + deep(`[`, mostLevels-1, `]`) + `,"y":[[]]}`,
		`{"metadata":{"labels":{"commit":"12e4567"},"annotations":{"a":"` + strings.Repeat("x", LargestVPA/2) + `"}}}`,
		``, `7`, `{"spec":`, `{"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":7}]}}}`, // encoding/json says what is wrong
	} {
		require.NoError(t, CheckVPA([]byte(in)), in)
	}
}

func TestDeleting(t *testing.T) {
	for in, want := range map[string]bool{
		`{"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"},"spec":{"x":[` + strings.Repeat(`{},`, 2*mostParts) + `{}]}}`: true,
		`{"spec":` + deep(`[`, mostParts, `]`) + `,"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"}}`:                    true,
		`{"metadata":{"deletionTimestamp":null}}`: false, `{"metadata":{}}`: false, `{"spec":{"deletionTimestamp":"x"}}`: false,
		`{"metadata":{"deletionTimestamp":"2026-01-02T12:00:00Z"},"metadata":{}}`: false, ``: false, `{"metadata":{"deletionTimestamp":"x"}`: false,
	} {
		require.Equal(t, want, Deleting([]byte(in)), in)
	}
}
