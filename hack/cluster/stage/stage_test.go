package stage

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const slow = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: .status.phase, operator: In, values: [Pending]}
  delay: {durationMilliseconds: 60000, durationFrom: {expressionFrom: '.metadata.annotations["slow"]'}}
  next: {statusTemplate: "phase: Running"}
`

const other = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: other}
spec:
  resourceRef: {kind: Node}
  next: {delete: true}
`

func folder(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, content := range files {
		all[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return all
}

func TestRead_ReadsAllStagesOfAFolder(t *testing.T) {
	stages, err := Read(folder(map[string]string{
		"b.yaml": slow, "a.yaml": "# two\n---\n" + other + "---\n# nothing\n", "notes.txt": "no stage", "sub/c.yaml": "not read",
	}))
	require.NoError(t, err)
	require.Len(t, stages, 2)
	require.Equal(t, "other", stages[0].Name)
	require.Equal(t, "a.yaml", stages[0].File)
	require.Equal(t, "pod-ready", stages[1].Name)
	require.Contains(t, string(stages[1].YAML), "60000")

	none, err := Read(folder(nil))
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestRead_RejectsInvalidStages(t *testing.T) {
	for _, tc := range []struct{ name, want, content string }{
		{name: "other API version", want: `apiVersion: want kwok.x-k8s.io/v1alpha1, got "v1"`,
			content: "{apiVersion: v1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}}}"},
		{name: "other kind", want: `kind: want Stage, got "Pod"`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Pod, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}}}"},
		{name: "invalid name", want: `metadata.name: want a name`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: A B}, " +
				"spec: {resourceRef: {kind: Pod}, next: {}}}"},
		{name: "no kind of the resource", want: `spec.resourceRef.kind: want a kind`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {next: {}}}"},
		{name: "no next step", want: `spec.next: want what happens`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}}}"},
		{name: "unknown field", want: `unknown field "slector"`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {slector: {}}}"},
		{name: "invalid key of a match expression", want: `want a query in the language of jq, got ".a[ (`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}, " +
				"selector: {matchExpressions: [{key: '.a['}]}}}"},
		{name: "invalid jitter expression", want: `want a query in the language of jq, got "| (`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}, " +
				"delay: {jitterDurationFrom: {expressionFrom: '|'}}}}"},
		{name: "invalid jq key of a match expression", want: `want a query in the language of jq, got ".b[ (`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}, " +
				"selector: {matchExpressions: [{jq: {key: '.b['}}]}}}"},
		{name: "invalid jq duration", want: `want a query in the language of jq, got "|| (`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}, " +
				"delay: {durationFrom: {jq: {expression: '||'}}}}}"},
		{name: "invalid weight expression", want: `want a query in the language of jq, got "&& (`,
			content: "{apiVersion: kwok.x-k8s.io/v1alpha1, kind: Stage, metadata: {name: x}, spec: {resourceRef: {kind: Pod}, next: {}, " +
				"weightFrom: {expressionFrom: '&&'}}}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(folder(map[string]string{"bad.yaml": tc.content, "good.yaml": slow}))
			require.ErrorContains(t, err, "bad.yaml: ")
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := Read(folder(map[string]string{"a.yaml": slow, "b.yaml": slow}))
	require.ErrorContains(t, err, "b.yaml: duplicate stage pod-ready, also in a.yaml")
}

func TestMerge_ReplacesByName(t *testing.T) {
	base := []Stage{{Name: "pod-ready", File: "ours"}, {Name: "pod-delete", File: "ours"}}
	extra := []Stage{{Name: "other", File: "theirs"}, {Name: "pod-ready", File: "theirs"}}
	require.Equal(t, []Stage{{Name: "pod-delete", File: "ours"}, {Name: "other", File: "theirs"}, {Name: "pod-ready", File: "theirs"}}, Merge(base, extra))
	require.Equal(t, base, Merge(base, nil))
}
