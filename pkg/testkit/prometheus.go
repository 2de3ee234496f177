package testkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

// StrictPrometheus fails the test for requests that Prometheus rejects. Others go to handle.
func StrictPrometheus(t *testing.T, handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := PrometheusProblem(r)
		if err == nil {
			handle(w, r)
			return
		}
		t.Errorf("%s: %v", r.URL.Path, err)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "bad_data", "error": err.Error()})
	}
}

const maxPrometheusPoints = 11_000

// PrometheusProblem returns the reason why Prometheus rejects a request to its query API. It
// ignores requests to other paths. The body stays readable with FormValue.
func PrometheusProblem(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return err
	}
	_, path, _ := strings.Cut(r.URL.Path, "/api/v1/")
	switch path {
	case "query":
		return errors.Join(optional(r, "time", promTime), optional(r, "timeout", promDuration), promQuery(r.Form.Get("query")))
	case "query_range":
		return errors.Join(rangeProblem(r), optional(r, "timeout", promDuration), promQuery(r.Form.Get("query")))
	case "series":
		errs := []error{optional(r, "start", promTime), optional(r, "end", promTime)}
		if len(r.Form["match[]"]) == 0 {
			errs = append(errs, errors.New("no match[] parameter provided"))
		}
		for _, selector := range r.Form["match[]"] {
			errs = append(errs, promSelector(selector))
		}
		return errors.Join(errs...)
	}
	return nil
}

func optional[T any](r *http.Request, name string, parse func(string) (T, error)) error {
	text := r.Form.Get(name)
	if text == "" {
		return nil
	}
	if _, err := parse(text); err != nil {
		return fmt.Errorf("invalid parameter %q: %w", name, err)
	}
	return nil
}

func rangeProblem(r *http.Request) error {
	start, err1 := promTime(r.Form.Get("start"))
	end, err2 := promTime(r.Form.Get("end"))
	step, err3 := promDuration(r.Form.Get("step"))
	switch {
	case err1 != nil || err2 != nil || err3 != nil:
		return errors.Join(err1, err2, err3)
	case end.Before(start):
		return errors.New(`invalid parameter "end": end timestamp must not be before start time`)
	case step <= 0:
		return errors.New(`invalid parameter "step": zero or negative query resolution step widths are not accepted`)
	case end.Sub(start)/step > maxPrometheusPoints:
		return errors.New("exceeded maximum resolution of 11,000 points per timeseries")
	}
	return nil
}

func promTime(text string) (time.Time, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.UnixMilli(int64(seconds * 1000)), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, fmt.Errorf("cannot parse %q to a valid timestamp", text)
	}
	return at, nil
}

func promDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("cannot parse %q to a valid duration", text)
	}
	return time.Duration(d), nil
}

var (
	promNumber   = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|\+?Inf|NaN)\b`)
	promName     = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	promString   = regexp.MustCompile("^(\"(\\\\.|[^\"\\\\\n])*\"|'(\\\\.|[^'\\\\\n])*'|`[^`]*`)")
	promRange    = regexp.MustCompile(`^\[\s*([0-9a-z]+)\s*(:\s*([0-9a-z]*)\s*)?\]`)
	promOperator = regexp.MustCompile(`^(==|!=|>=|<=|[-+*/%^<>]|(and|or|unless|atan2)\b)(\s*bool\b)?`)
	promMatcher  = regexp.MustCompile(`^(=~|!~|!=|=)`)
)

// promReader checks the syntax of a PromQL expression approximately, without types.
type promReader struct {
	text string
	rest string
}

func promQuery(text string) error {
	p := &promReader{text: text, rest: text}
	if err := p.expression(); err != nil {
		return err
	}
	return p.end()
}

func promSelector(text string) error {
	p := &promReader{text: text, rest: text}
	p.take(promName)
	matchers := 0
	if p.next("{") {
		var err error
		if matchers, err = p.matchers(); err != nil {
			return err
		}
	}
	if matchers == 0 && strings.HasPrefix(text, "{") {
		return errors.New("match[] must contain at least one non-empty matcher")
	}
	return p.end()
}

func (p *promReader) end() error {
	if p.space(); p.rest != "" {
		return p.problem("unexpected text")
	}
	return nil
}

func (p *promReader) problem(what string) error {
	return fmt.Errorf("invalid parameter %q: %d: parse error: %s in %q", "query", len(p.text)-len(p.rest)+1, what, p.text)
}

func (p *promReader) space() { p.rest = strings.TrimLeft(p.rest, " \t\n") }

func (p *promReader) take(what *regexp.Regexp) string {
	p.space()
	found := what.FindString(p.rest)
	p.rest = p.rest[len(found):]
	return found
}

func (p *promReader) next(text string) bool {
	p.space()
	rest, found := strings.CutPrefix(p.rest, text)
	p.rest = rest
	return found
}

func (p *promReader) expression() error {
	for {
		if err := p.operand(); err != nil {
			return err
		}
		if p.take(promOperator) == "" {
			return nil
		}
		if err := p.clauses("on", "ignoring", "group_left", "group_right"); err != nil {
			return err
		}
	}
}

func (p *promReader) clauses(words ...string) error {
	for _, word := range words {
		before := p.rest
		if p.take(promName) != word {
			p.rest = before
			continue
		}
		if !p.next("(") {
			return p.problem("expected ( after " + word)
		}
		for !p.next(")") {
			if p.take(promName) == "" {
				return p.problem("expected the name of a label")
			}
			p.next(",")
		}
	}
	return nil
}

func (p *promReader) operand() error {
	for p.next("-") || p.next("+") {
	}
	name := ""
	switch {
	case p.next("("):
		if err := p.expression(); err != nil {
			return err
		}
		if !p.next(")") {
			return p.problem("unclosed parenthesis")
		}
	case p.take(promNumber) != "", p.take(promString) != "":
		return nil
	default:
		if name = p.take(promName); name == "" && !strings.HasPrefix(p.rest, "{") {
			return p.problem("expected an expression")
		}
	}
	if err := p.clauses("by", "without"); err != nil {
		return err
	}
	if name != "" && p.next("(") {
		if err := p.arguments(); err != nil {
			return err
		}
		if err := p.clauses("by", "without"); err != nil {
			return err
		}
	} else if p.next("{") {
		if _, err := p.matchers(); err != nil {
			return err
		}
	}
	return p.modifiers()
}

func (p *promReader) arguments() error {
	for !p.next(")") {
		if err := p.expression(); err != nil {
			return err
		}
		if !p.next(",") && !strings.HasPrefix(p.rest, ")") {
			return p.problem("unclosed parenthesis")
		}
	}
	return nil
}

func (p *promReader) matchers() (n int, err error) {
	for ; !p.next("}"); n++ {
		if p.take(promName) == "" {
			return n, p.problem("expected the name of a label or }")
		}
		operator := p.take(promMatcher)
		value := p.take(promString)
		if operator == "" || value == "" {
			return n, p.problem("expected an operator and a string")
		}
		text, err := strconv.Unquote(value)
		if err != nil {
			return n, p.problem("invalid string")
		}
		if strings.HasSuffix(operator, "~") {
			if _, err := regexp.Compile(text); err != nil {
				return n, p.problem(err.Error())
			}
		}
		if !p.next(",") && !strings.HasPrefix(p.rest, "}") {
			return n, p.problem("expected , or }")
		}
	}
	return n, nil
}

func (p *promReader) modifiers() error {
	if p.space(); strings.HasPrefix(p.rest, "[") {
		found := promRange.FindStringSubmatch(p.rest)
		if found == nil {
			return p.problem("invalid range")
		}
		p.rest = p.rest[len(found[0]):]
		for _, text := range []string{found[1], found[3]} {
			if d, err := model.ParseDuration(text); text != "" && (err != nil || d == 0) {
				return p.problem("not a valid duration: " + text)
			}
		}
	}
	before := p.rest
	if p.take(promName) != "offset" {
		p.rest = before
		return nil
	}
	p.next("-")
	if text := p.take(regexp.MustCompile(`^[0-9a-z.]+`)); text == "" {
		return p.problem("expected a duration")
	} else if _, err := model.ParseDuration(text); err != nil {
		return p.problem("not a valid duration: " + text)
	}
	return nil
}
