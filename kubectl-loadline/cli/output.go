package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/convert"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/printable"
)

// Report is the output of a command. JSON and YAML encode the report itself.
type Report interface {
	Tables() []Table
	Notes() []string // printed below the tables
}

// Table is part of a report. CSV has the first table only.
type Table struct {
	Title   string // printed above it, if any
	Columns []string
	Wide    int // number of last columns that only "wide" prints
	Rows    [][]string
}

// Formats are the values of --output.
var Formats = []string{"table", "wide", "json", "yaml", "csv", "md"}

// OutputFlag is the flag --output.
type OutputFlag struct{ Format string }

// AddOutputFlag adds the flag to a command.
func AddOutputFlag(cmd *cobra.Command) *OutputFlag {
	o := &OutputFlag{}
	cmd.Flags().StringVarP(&o.Format, "output", "o", Formats[0], "Form of the answer: "+strings.Join(Formats, ", ")+".")
	// This only fails without the flag.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(Formats, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// Validate checks the format.
func (o *OutputFlag) Validate() error {
	return flags.Check(slices.Contains(Formats, o.Format), "output", o.Format, "must be "+strings.Join(Formats, ", "))
}

// Print writes a report. Notes of CSV go to standard error.
func (o *OutputFlag) Print(out, errOut io.Writer, a Report) error {
	switch o.Format {
	case "json":
		e := json.NewEncoder(printable.JSON(out))
		e.SetIndent("", "  ")
		return e.Encode(a)
	case "yaml":
		text, err := MarshalYAML(a)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	case "csv":
		t := a.Tables()[0]
		for _, note := range a.Notes() {
			if note != "" {
				printable.Fprintln(errOut, note)
			}
		}
		return printable.CSV(out, append([][]string{t.Columns}, t.Rows...))
	}
	return o.tables(out, a)
}

// MarshalYAML uses flow style for unprintable characters, some of which block style leaves as is.
func MarshalYAML(value any) ([]byte, error) {
	var flow bytes.Buffer
	e := json.NewEncoder(printable.FlowYAML(&flow))
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	block, err := yaml.JSONToYAML(flow.Bytes())
	if err == nil && printable.Lines(string(block)) != string(block) {
		return flow.Bytes(), nil
	}
	return block, err
}

func (o *OutputFlag) tables(out io.Writer, a Report) error {
	markdown := o.Format == "md"
	for i, t := range a.Tables() {
		if i > 0 {
			printable.Fprintln(out)
		}
		if t.Title != "" {
			printable.Fprintf(out, "%s:\n", t.Title)
			if markdown {
				printable.Fprintln(out)
			}
		}
		if markdown {
			t.markdown(out)
		} else if err := t.text(out, o.Format == "wide"); err != nil {
			return err
		}
	}
	for _, note := range a.Notes() {
		if markdown {
			printable.Fprintln(out)
		}
		printable.Fprintln(out, note)
	}
	return nil
}

func (t Table) text(out io.Writer, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	shown := len(t.Columns)
	if !wide {
		shown -= t.Wide
	}
	write := func(cells []string) {
		last := shown // trailing empty cells are dropped
		for last > 0 && cells[last-1] == "" {
			last--
		}
		printable.Row(w, cells[:last]...)
	}
	if len(t.Columns) > 0 {
		write(t.Columns)
	}
	for _, row := range t.Rows {
		write(row)
	}
	return w.Flush()
}

func (t Table) markdown(out io.Writer) {
	write := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, cell := range cells {
			escaped[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		printable.Fprintf(out, "| %s |\n", strings.Join(escaped, " | "))
	}
	write(t.Columns)
	write(slices.Repeat([]string{"---"}, len(t.Columns)))
	for _, row := range t.Rows {
		write(row)
	}
}

// Without returns the table without a column.
func (t Table) Without(column int) Table {
	t.Columns = slices.Delete(slices.Clone(t.Columns), column, column+1)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Delete(slices.Clone(row), column, column+1)
	}
	return t
}

// Timestamp formats a time in UTC.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// FormatResource formats a resource of a list, or returns "none".
func FormatResource(list resources.List, k resources.Kind) string {
	a, found := list.Get(k)
	if !found {
		return "none"
	}
	return FormatAmount(k, float64(a))
}

// FormatQuantity formats a resource of a list, or returns "-".
func FormatQuantity(list corev1.ResourceList, k resources.Kind) string {
	q, found := list[convert.ResourceName(k)]
	if !found {
		return "-"
	}
	return FormatAmount(k, float64(convert.Amount(k, q)))
}

// FormatAmount formats an amount of millicores or bytes.
func FormatAmount(k resources.Kind, a float64) string {
	if k == resources.CPU {
		return fmt.Sprintf("%.4gm", a)
	}
	const mib = 1 << 20
	return fmt.Sprintf("%.5g MiB", a/mib)
}

// PodName returns NAMESPACE/NAME of a pod.
func PodName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// VPAName returns the name of a VPA in findings and messages.
func VPAName(v *vpav1.VerticalPodAutoscaler) string { return "VPA " + v.Namespace + "/" + v.Name }

// Warnings returns problems as notes.
func Warnings(problems []string) (notes []string) {
	for _, problem := range problems {
		notes = append(notes, "! "+problem)
	}
	return notes
}
