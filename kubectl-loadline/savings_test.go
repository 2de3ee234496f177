package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/flags"
)

const policiesWithSavings = `{"apiVersion":"loadline.dev/v1alpha1","kind":"SizingPolicyList","metadata":{},"items":[
 {"metadata":{"name":"shop"},"spec":{},"status":{"counts":{"selected":102},"savings":{"cpu":"1500m","memory":"3Gi"},"increases":{"cpu":"100m"},
  "workloads":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","namespace":"shop","name":"web"},"savings":{"cpu":"1"},"increases":{"memory":"512Mi"}}]}},
 {"metadata":{"name":"new"},"spec":{}},
 {"metadata":{"name":"batch"},"spec":{},"status":{"counts":{"selected":3},"savings":{"cpu":"2"}}}]}`

// savings runs the command against an API server that has the policies, or does not know them.
func savings(t *testing.T, known bool, args ...string) (code int, out, errs string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !known || r.URL.Path != "/apis/loadline.dev/v1alpha1/sizingpolicies" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(policiesWithSavings))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":%q}}]}`, server.URL), 0o600))
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"savings", "--kubeconfig=" + file}, args...), &o, &e)
	return code, o.String(), e.String()
}

// tableLines are those of the table, with one space between cells.
func tableLines(out string) (rows []string) {
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

func TestSavingsOfAllPolicies(t *testing.T) {
	code, out, errs := savings(t, true)
	require.Equal(t, flags.OK, code, errs)
	require.Equal(t, []string{
		"POLICY WORKLOADS CORES LESS CORES MORE GIB LESS GIB MORE SAVES COSTS",
		"batch 3 2.00 0.00 0.00 0.00 45.26 0.00",
		"shop 102 1.50 0.10 3.00 0.00 42.70 2.26",
		"all 105 3.50 0.10 3.00 0.00 87.97 2.26",
		"! SizingPolicy new has no status: its recommender does not run, or did not see it yet",
	}, tableLines(out)[:5])
	require.Contains(t, out, "in a month of 730 hours, at 0.031 a core-hour and 0.004 a GiB-hour.")
}

func TestPricesAndWorkloadsOfOnePolicy(t *testing.T) {
	code, out, errs := savings(t, true, "--core-price=1", "--gib-price=2", "--workloads", "shop")
	require.Equal(t, flags.OK, code, errs)
	require.Equal(t, []string{
		"shop 102 1.50 0.10 3.00 0.00 5475.00 73.00",
		"Deployment shop/web 1.00 0.00 0.00 0.50 730.00 730.00",
		"and 101 others",
		"",
	}, tableLines(out)[1:5], "one policy has no sum")
}

func TestSavingsForPrograms(t *testing.T) {
	code, out, errs := savings(t, true, "-o", "json", "--workloads", "batch", "shop")
	require.Equal(t, flags.OK, code, errs)
	var a savingsAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &a))
	require.Len(t, a.Policies, 2)
	require.InDelta(t, 3.5, a.All.CoresLess, 1e-9)
	require.Equal(t, "Deployment shop/web", a.Workloads["shop"][0].Name)
	_, out, _ = savings(t, true, "-o", "csv", "shop")
	require.Equal(t, "POLICY,WORKLOADS,CORES LESS,CORES MORE,GIB LESS,GIB MORE,SAVES,COSTS\nshop,102,1.50,0.10,3.00,0.00,42.70,2.26\n", out)
}

func TestSavingsThatCannotBeShown(t *testing.T) {
	for _, c := range []struct {
		known bool
		args  []string
		code  int
		says  string
	}{
		{true, []string{"nothing", "shop"}, flags.Failed, "SizingPolicy nothing does not exist"},
		{false, nil, flags.Failed, "install their definition"},
		{true, []string{"--core-price=-1", "--gib-price=NaN"}, flags.Usage, "--core-price=-1: must be a number that is not negative; --gib-price=NaN: must be"},
		{true, []string{"--core-price=Inf"}, flags.Usage, "--core-price=+Inf"},
		{true, []string{"--price=1"}, flags.Usage, "unknown flag"},
		{true, []string{"--context=other"}, flags.Failed, "context: other"},
	} {
		code, out, errs := savings(t, c.known, c.args...)
		require.Equal(t, c.code, code, c.args)
		require.Empty(t, out)
		require.Contains(t, errs, c.says)
	}
}
