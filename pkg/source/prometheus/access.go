package prometheus

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/flags"
)

// Access says who asks Prometheus, and how long an answer may take.
type Access struct {
	QueryTimeout string // of one query, its answer included
	Insecure     bool   // do not verify the TLS certificate

	Username, Password, BearerToken, BearerTokenFile string

	Headers     []string // "Name: value" of each request, such as the tenant
	HeadersFile string   // with more of them, one a line
	Matchers    string   // that all series must match, as PromQL has them between braces
}

// DefaultAccess returns the defaults of the reference recommender.
func DefaultAccess() Access { return Access{QueryTimeout: "5m"} }

// AddFlags binds the group to fs.
func (a *Access) AddFlags(fs *pflag.FlagSet) {
	text := func(field *string, name, usage string) { fs.StringVar(field, name, *field, usage) }
	fs.BoolVar(&a.Insecure, "prometheus-insecure", a.Insecure, "Do not verify the TLS certificate of Prometheus.")
	text(&a.QueryTimeout, "prometheus-query-timeout", "Timeout of one query.")
	text(&a.Username, "username", "User for basic authentication; else the variable PROMETHEUS_USERNAME.")
	text(&a.Password, "password", "Password for basic authentication; else the variable PROMETHEUS_PASSWORD.")
	text(&a.BearerToken, "prometheus-bearer-token", "Token for bearer authentication.")
	fs.StringArrayVar(&a.Headers, "prometheus-header", a.Headers, `Header of each request, as in "X-Scope-OrgID: team". It may be given several times. Secrets belong into --prometheus-headers-file.`)
	text(&a.HeadersFile, "prometheus-headers-file", "File with headers of each request, one \"Name: value\" a line. It is read for each query.")
	text(&a.Matchers, "prometheus-matchers", "What all series must match, as PromQL has it between braces: cluster=\"eu\". Needed where several clusters share a server. An expression that is more than a selector must have it itself.")
	text(&a.BearerTokenFile, "prometheus-bearer-token-file", "File with that token. It is read for each query, so it may rotate.")
}

// Complete reads what flags leave to the environment, and looks whether the file
// with the token can be read.
func (a *Access) Complete() error {
	if a.BearerToken+a.BearerTokenFile == "" && (a.Username == "" || a.Password == "") {
		if user, password := os.Getenv("PROMETHEUS_USERNAME"), os.Getenv("PROMETHEUS_PASSWORD"); user != "" && password != "" {
			a.Username, a.Password = user, password
		}
	}
	if a.HeadersFile != "" {
		if _, err := readHeaders(nil, a.HeadersFile); err != nil {
			return flags.Problem("prometheus-headers-file", a.HeadersFile, "must be a file with headers: "+err.Error())
		}
	}
	if a.BearerTokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(a.BearerTokenFile)
	if err == nil && strings.TrimSpace(string(token)) == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return flags.Problem("prometheus-bearer-token-file", a.BearerTokenFile, "must be a file with a token: "+err.Error())
	}
	return nil
}

// Validate checks that one way of authentication is chosen and, if Prometheus is
// asked at all, that the time-out makes sense.
func (a *Access) Validate(asked bool) error {
	timeout, err := ParseDuration(a.QueryTimeout)
	_, wrong := readHeaders(a.Headers, "")
	return errors.Join(
		flags.Check(wrong == nil, "prometheus-header", "(hidden)", `must be a header such as "X-Scope-OrgID: team"`),
		flags.Check(a.BearerToken == "" || a.BearerTokenFile == "", "prometheus-bearer-token", "(hidden)",
			"excludes --prometheus-bearer-token-file="+a.BearerTokenFile+": give only one of the two"),
		flags.Check(a.Username == "" || a.BearerToken == "" && a.BearerTokenFile == "", "username", a.Username,
			"excludes a bearer token: give either the user or the token"),
		flags.Check(!asked || err == nil && timeout > 0, "prometheus-query-timeout", a.QueryTimeout, "must be a duration such as 5m or 90s"),
	)
}

// Warnings returns a line for each setting that has no effect.
func (a *Access) Warnings() []string {
	if (a.Username == "") == (a.Password == "") {
		return nil
	}
	return []string{flags.Problem("username", cmp.Or(a.Username, `""`), "has no effect without --password, and the other way round").Error()}
}

// Client returns the settings of a client of a server at an address.
func (a *Access) Client(address string) Config {
	c := Config{Address: address, Insecure: a.Insecure, Token: a.BearerToken, TokenFile: a.BearerTokenFile, Headers: a.Headers, HeadersFile: a.HeadersFile}
	if a.Username != "" && a.Password != "" {
		c.Username, c.Password = a.Username, a.Password
	}
	c.Timeout, _ = ParseDuration(a.QueryTimeout)
	return c
}
