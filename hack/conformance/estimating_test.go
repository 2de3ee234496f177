package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVectors_OtherProjectsPass(t *testing.T) {
	_, out, stderr := conformance("-vectors", ours)
	for _, line := range []string{
		"crane.json: 100 passed, 0 failed, 0 not yet supported", "cruisekube.json: 90 passed, 0 failed, 0 not yet supported",
		"attune.json: 251 passed, 0 failed, 0 not yet supported", "absent by design (5): attune/hpa_retune: ",
		"by design schedule-009 (attune/schedule): a time zone",
		"by design oom-009 (crane/oom): C3", "by design normalise-015 (crane/normalise): C10",
	} {
		require.Contains(t, out, line, "%s", stderr)
	}
}

func TestHandlers_OtherProjectsDetectChangedOutput(t *testing.T) {
	suite, err := suite()
	require.NoError(t, err)
	unseen := map[string]bool{}
	for kind := range handlers {
		if strings.Contains(kind, "/") {
			unseen[kind] = true
		}
	}
	for _, name := range []string{"crane.json", "attune.json", "cruisekube.json"} {
		raw, err := os.ReadFile(filepath.Join(ours, name))
		require.NoError(t, err)
		var file map[string]any
		require.NoError(t, json.Unmarshal(raw, &file))
		for _, c := range file["cases"].([]any) {
			one := c.(map[string]any)
			kind := file["system"].(string) + "/" + one["kind"].(string)
			if _, deviates := suite.ByDesign[file["system"].(string)+"/"+one["id"].(string)]; deviates || !unseen[kind] || !disturb(one["out"]) {
				continue
			}
			delete(unseen, kind)
			changed, err := json.Marshal(map[string]any{"system": file["system"], "schemaNotes": file["schemaNotes"], "cases": []any{one}})
			require.NoError(t, err)
			code, out, _ := conformance("-vectors", directory(t, name, string(changed)))
			require.Equal(t, 1, code, "%s: %s", kind, out)
			require.Contains(t, out, "  FAILED ")
		}
	}
	require.Empty(t, unseen)
}

// disturb changes one number, boolean, string or list in a value, and reports whether it found one.
func disturb(v any) bool {
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for name, inner := range object {
		if list, ok := inner.([]any); ok && len(list) > 0 {
			object[name] = list[1:]
			return true
		}
		if number, ok := inner.(float64); ok {
			object[name] = number + 1
			return true
		}
		if truth, ok := inner.(bool); ok {
			object[name] = !truth
			return true
		}
		if text, ok := inner.(string); ok && text != "" {
			object[name] = text + "0"
			return true
		}
		if disturb(inner) {
			return true
		}
	}
	return false
}
