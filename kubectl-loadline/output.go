package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/printable"
)

// report is the answer of a command: tables for people, and itself for programs, as JSON.
type report interface {
	tables() []table
	notes() []string // sentences below the tables
}

// table is a part of an answer. The first one of an answer is what it is about, so that CSV has it
// alone.
type table struct {
	Title   string // above it; empty: none
	Columns []string
	Wide    int // how many of the last columns are left out where there is little room
	Rows    [][]string
}

// formats are the forms of an answer.
var formats = []string{"table", "wide", "json", "yaml", "csv", "md"}

// outputFlag says in which form a command answers.
type outputFlag struct{ Format string }

// addOutputFlag binds it to a command.
func addOutputFlag(cmd *cobra.Command) *outputFlag {
	o := &outputFlag{}
	cmd.Flags().StringVarP(&o.Format, "output", "o", formats[0], "Form of the answer: "+strings.Join(formats, ", ")+".")
	// The flag is there, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return o
}

func (o *outputFlag) validate() error {
	return flags.Check(slices.Contains(formats, o.Format), "output", o.Format, "must be "+strings.Join(formats, ", "))
}

// print writes an answer. CSV has no place for notes, so they go to standard error.
func (o *outputFlag) print(out, errOut io.Writer, a report) error {
	switch o.Format {
	case "json":
		e := json.NewEncoder(printable.JSON(out))
		e.SetIndent("", "  ")
		return e.Encode(a)
	case "yaml":
		text, err := marshalYAML(a)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	case "csv":
		t := a.tables()[0]
		for _, note := range a.notes() {
			if note != "" {
				printable.Fprintln(errOut, note)
			}
		}
		return printable.CSV(out, append([][]string{t.Columns}, t.Rows...))
	case "md":
		return o.each(out, a, table.markdown)
	}
	return o.each(out, a, func(t table, out io.Writer) error { return t.text(out, o.Format == "wide") })
}

// marshalYAML returns a value as YAML without characters that are not printable. In block style
// some of them are not escaped, so a value with one of these is written in flow style.
func marshalYAML(of any) ([]byte, error) {
	var flow bytes.Buffer
	e := json.NewEncoder(printable.FlowYAML(&flow))
	e.SetIndent("", "  ")
	if err := e.Encode(of); err != nil {
		return nil, err
	}
	block, err := yaml.JSONToYAML(flow.Bytes())
	if err == nil && printable.Lines(string(block)) != string(block) {
		return flow.Bytes(), nil
	}
	return block, err
}

// each writes all tables and notes.
func (o *outputFlag) each(out io.Writer, a report, write func(table, io.Writer) error) error {
	for i, t := range a.tables() {
		if i > 0 {
			printable.Fprintln(out)
		}
		if t.Title != "" {
			printable.Fprintf(out, "%s:\n", t.Title)
			if o.Format == "md" {
				printable.Fprintln(out)
			}
		}
		if err := write(t, out); err != nil {
			return err
		}
	}
	for _, note := range a.notes() {
		if o.Format == "md" {
			printable.Fprintln(out)
		}
		printable.Fprintln(out, note)
	}
	return nil
}

func (t table) text(out io.Writer, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	shown := len(t.Columns)
	if !wide {
		shown -= t.Wide
	}
	line := func(cells []string) {
		last := shown // columns without a value at the end are left out
		for last > 0 && cells[last-1] == "" {
			last--
		}
		printable.Row(w, cells[:last]...)
	}
	if len(t.Columns) > 0 {
		line(t.Columns)
	}
	for _, row := range t.Rows {
		line(row)
	}
	return w.Flush()
}

func (t table) markdown(out io.Writer) error {
	line := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, cell := range cells {
			escaped[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		printable.Fprintf(out, "| %s |\n", strings.Join(escaped, " | "))
	}
	line(t.Columns)
	line(slices.Repeat([]string{"---"}, len(t.Columns)))
	for _, row := range t.Rows {
		line(row)
	}
	return nil
}

// dash is a cell of which there is nothing to say.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
