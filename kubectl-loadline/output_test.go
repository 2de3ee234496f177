package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// hostile clears the screen, forges a line, reorders text and ends a cell.
const hostile = "=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|"

// text is an answer with one text in every place.
type text string

func (a text) tables() []table {
	return []table{{Title: string(a), Columns: []string{"NAME", string(a)}, Rows: [][]string{{string(a), "x"}}}}
}

func (a text) notes() []string { return []string{string(a)} }

// requirePrintable checks that no character controls the terminal.
func requirePrintable(t *testing.T, printed string) {
	t.Helper()
	for _, r := range printed {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", printed, r)
	}
	require.NotContains(t, printed, "\n! forged")
}

func TestOutput_QuotesControlCharacters(t *testing.T) {
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			requirePrintable(t, printed(t, text(hostile), format))
		})
	}
	require.Equal(t, `=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|:
NAME                                                =1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|
=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|  x
=1+1\x1b[2J\x9b\u009b\n! forged\r\tcell\x7f\u202e|
`, printed(t, text(hostile), "table"))
}

// FuzzOutput prints an answer in each form: no control character is printed, the number of lines and columns
// does not depend on a text, no cell of CSV is a formula, and JSON and YAML keep their values.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{"web", hostile, "-1", "@SUM(A1)", "a: b\n- c", "\u2028", "'", "a\u202eb", "a\U000e0041b", "\x7f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed string) {
		for format, lines := range map[string]int{"table": 4, "wide": 4, "md": 7} {
			out := printed(t, text(seed), format)
			for _, r := range out {
				require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", out, r)
			}
			require.Equal(t, lines, strings.Count(out, "\n"), out)
		}
		for format, unmarshal := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
		} {
			var back string
			out := printed(t, text(seed), format)
			require.NoError(t, unmarshal([]byte(out), &back))
			require.Equal(t, strings.ToValidUTF8(strings.Join(strings.Split(seed, ""), ""), "\ufffd"), back)
			for _, r := range out {
				require.True(t, r == '\n' || unicode.IsPrint(r), "%q has %U", out, r)
			}
		}
		var out, notes bytes.Buffer
		require.NoError(t, (&outputFlag{"csv"}).print(&out, &notes, text(seed)))
		rows, err := csv.NewReader(&out).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for _, row := range rows {
			for _, cell := range row {
				require.False(t, strings.ContainsAny(cell, "\n\r\t\x1b"))
				if strings.IndexAny(cell, "=@") == 0 || strings.IndexAny(cell, "+-") == 0 && strings.ContainsFunc(cell, unicode.IsLetter) {
					require.Regexp(t, `^[+-](Inf|\d+(\.\d*)?[eE][+-]?\d+)$`, cell)
				}
			}
		}
	})
}

func TestExplain_QuotesMessagesOfObjects(t *testing.T) {
	s := newShop()
	s.pods["front-1-a"].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
		Reason: hostile, Message: hostile, LastTransitionTime: metav1.NewTime(before(5))}}
	s.policy.Status.Conditions = []metav1.Condition{{Type: "Sharing", Status: metav1.ConditionFalse, Reason: hostile, Message: hostile}}
	s.vpa.Status.Conditions = []vpav1.VerticalPodAutoscalerCondition{{Type: "TargetHeld", Status: corev1.ConditionTrue, Message: hostile}}
	s.vpa.Annotations = map[string]string{"loadline.dev/recipe": hostile}
	pod := s.says(t, "front-1-a")
	requirePrintable(t, pod)
	require.Contains(t, pod, `\x1b[2J`)
	kube, own := s.clients()
	a, err := statusOf(t.Context(), own, s.question(t, kube, ""), statusScope{Updater: "kube-system"})
	require.NoError(t, err)
	for _, format := range []string{"table", "wide", "md", "csv", "json"} {
		requirePrintable(t, printed(t, a, format))
	}
}

func TestErrors_QuoteControlCharacters(t *testing.T) {
	var out, errOut bytes.Buffer
	require.NotZero(t, run(t.Context(), []string{"explain", "--kubeconfig", t.TempDir() + "/\x1b[2J", "web"}, &out, &errOut))
	requirePrintable(t, out.String()+errOut.String())
	require.NotZero(t, run(t.Context(), []string{"backtest", "\x1b[2J"}, &out, &errOut))
	requirePrintable(t, out.String()+errOut.String())
}
