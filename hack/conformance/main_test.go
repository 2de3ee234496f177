package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const ours = "../../testdata/vectors"

func conformance(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

func directory(t *testing.T, name, content string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	return dir
}

func TestVectors_RecommenderPasses(t *testing.T) {
	code, out, stderr := conformance("-vectors", ours)
	require.Zero(t, code, "%s%s", out, stderr)
	require.Contains(t, out, "recommender.json: 28 passed, 0 failed, 0 not yet supported")
	require.Contains(t, out, "by design container-zero-first-sample (container): a window that begins with a sample of 0")
	require.Regexp(t, `\n\d+ passed, 0 failed, \d+ skipped\n$`, out)
}

// Guards the runner itself: each kind must fail when the expected output changes.
func TestHandlers_DetectChangedOutput(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(ours, "recommender.json"))
	require.NoError(t, err)
	for kind, change := range map[string][2]string{
		"bucketing":       {`"numBuckets": 176`, `"numBuckets": 177`},
		"histogram":       {`"totalWeight": 37.81568542494924`, `"totalWeight": 37.8156855`},
		"container":       {`"currentPeak": 11324620800`, `"currentPeak": 11324620801`},
		"recommendation":  {`"cpu": 952,`, `"cpu": 953,`},
		"format":          {`"memory": "1320702443520m"`, `"memory": "1320702443521m"`},
		"postprocess":     {`"cpu": "5500m",` + "\n        \"memory\": \"5Gi\"\n       },\n       \"upperBound\"", `"cpu": "5501m",` + "\n        \"memory\": \"5Gi\"\n       },\n       \"upperBound\""},
		"evictionEvent":   {`"memoryBytes": 1500000000`, `"memoryBytes": 1500000001`},
		"podUpdate":       {`"timestamp": "2024-01-01T10:01:00Z"`, `"timestamp": "2024-01-01T10:01:01Z"`},
		"checkpointWrite": {`"20": 4204`, `"20": 4205`},
	} {
		t.Run(kind, func(t *testing.T) {
			require.Contains(t, string(raw), change[0])
			dir := directory(t, "changed.json", strings.Replace(string(raw), change[0], change[1], 1))
			code, out, _ := conformance("-vectors", dir)
			require.Equal(t, 1, code)
			require.Contains(t, out, "("+kind+")")
			require.Contains(t, out, "  FAILED ")
			require.Contains(t, out, "expected")
		})
	}
}

func TestHandlers_RejectUnknownInput(t *testing.T) {
	for name, c := range map[string][2]string{
		"field":     {"bucketing", `{"surprise": 1}`},
		"scheme":    {"bucketing", `{"options": {"scheme": "round"}}`},
		"scheme 2":  {"histogram", `{"options": {"scheme": "round"}}`},
		"operation": {"histogram", `{"options": {"scheme": "linear", "maxValue": 9, "firstBucketSize": 1, "epsilon": 0.1}, "operations": [{"op": "halve"}]}`},
		"merge":     {"histogram", `{"options": {"scheme": "linear", "maxValue": 9, "firstBucketSize": 1, "epsilon": 0.1}, "mergeWith": [{"op": "halve"}]}`},
		"event":     {"container", `{"events": [{"type": "nap"}]}`},
		"version":   {"checkpointWrite", `{"restored": {"version": "v1"}}`},
		"bucket":    {"checkpointWrite", `{"restored": {"version": "v3", "cpuHistogram": {"bucketWeights": {"999": 1}, "totalWeight": 1}}}`},
		"pod event": {"checkpointWrite", `{"pods": [{"name": "p", "events": [{"type": "nap"}]}]}`},
		"quantity":  {"postprocess", `{"globalMaxAllowed": {"cpu": "much"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, "x.json", `{"schemaVersion": 1, "vectors": [{"id": "x", "kind": "`+c[0]+`", "input": `+c[1]+`, "expected": {}}]}`)
			code, out, _ := conformance("-vectors", dir)
			require.Equal(t, 1, code, out)
			require.Contains(t, out, "0 passed, 1 failed, 0 skipped\n")
		})
	}
}

func TestRun_RejectsInvalidDirectories(t *testing.T) {
	for name, c := range map[string]struct{ dir, says string }{
		"absent": {filepath.Join(t.TempDir(), "nowhere"), "read vectors"},
		"empty":  {t.TempDir(), "has no .json file"},
		"a file": {"main.go", "read vectors"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := conformance("-vectors", c.dir)
			require.Equal(t, 1, code)
			require.Contains(t, stderr, c.says)
			require.Empty(t, out)
		})
	}
}

func TestRun_FailsOnUnknownSchema(t *testing.T) {
	code, out, _ := conformance("-vectors", directory(t, "future.json", `{"schemaVersion": 2, "vectors": [{}]}`))
	require.Equal(t, 1, code)
	require.Contains(t, out, "FAILED: unknown schema: schemaVersion is 2")
	require.Contains(t, out, "0 passed, 1 failed, 0 skipped\n")
}

func TestRun_RejectsInvalidArguments(t *testing.T) {
	for _, args := range [][]string{{"-what"}, {"surplus"}} {
		code, _, stderr := conformance(args...)
		require.Equal(t, 2, code)
		require.NotEmpty(t, stderr)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestRun_FailsOnWriteError(t *testing.T) {
	var stderr bytes.Buffer
	require.Equal(t, 1, run([]string{"-vectors", ours}, brokenWriter{}, &stderr))
	require.Contains(t, stderr.String(), "closed")
}
