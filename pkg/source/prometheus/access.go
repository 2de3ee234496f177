package prometheus

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/flags"
)

// Access configures authentication, headers and timeouts for Prometheus.
type Access struct {
	QueryTimeout string // of one query, including its response
	Insecure     bool   // do not verify the TLS certificate

	Username, Password, BearerToken, BearerTokenFile string

	Headers     []string // "Name: value" of each request, such as the tenant
	HeadersFile string   // more headers, one per line
	Matchers    string   // PromQL matchers for all series, without braces
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
	fs.StringArrayVar(&a.Headers, "prometheus-header", a.Headers, `Header of each request, as in "X-Scope-OrgID: team". It can be repeated. Put secrets into --prometheus-headers-file.`)
	text(&a.HeadersFile, "prometheus-headers-file", "File with headers of each request, one \"Name: value\" a line. It is read for each query.")
	text(&a.Matchers, "prometheus-matchers", "PromQL matchers for all series, without braces: cluster=\"eu\". Required if several clusters share a server. Expressions other than plain selectors must contain the matchers themselves.")
	text(&a.BearerTokenFile, "prometheus-bearer-token-file", "File with that token. It is read for each query, so it may rotate.")
}

// Complete reads credentials from the environment, and checks that configured files are readable.
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

// Validate refuses several authentication methods, and an invalid timeout if enabled.
func (a *Access) Validate(enabled bool) error {
	timeout, err := ParseDuration(a.QueryTimeout)
	_, wrong := readHeaders(a.Headers, "")
	return errors.Join(
		flags.Check(wrong == nil, "prometheus-header", "(hidden)", `must be a header such as "X-Scope-OrgID: team"`),
		flags.Check(a.BearerToken == "" || a.BearerTokenFile == "", "prometheus-bearer-token", "(hidden)",
			"excludes --prometheus-bearer-token-file="+a.BearerTokenFile+": give only one of the two"),
		flags.Check(a.Username == "" || a.BearerToken == "" && a.BearerTokenFile == "", "username", a.Username,
			"excludes a bearer token: give either the user or the token"),
		flags.Check(!enabled || err == nil && timeout > 0, "prometheus-query-timeout", a.QueryTimeout, "must be a duration such as 5m or 90s"),
	)
}

// Warnings returns a line for each setting that has no effect.
func (a *Access) Warnings() []string {
	if (a.Username == "") == (a.Password == "") {
		return nil
	}
	return []string{flags.Problem("username", cmp.Or(a.Username, `""`), "has no effect without --password, and the other way round").Error()}
}

// Client returns the client configuration for a server address.
func (a *Access) Client(address string) Config {
	c := Config{Address: address, Insecure: a.Insecure, Token: a.BearerToken, TokenFile: a.BearerTokenFile, Headers: a.Headers, HeadersFile: a.HeadersFile}
	if a.Username != "" && a.Password != "" {
		c.Username, c.Password = a.Username, a.Password
	}
	c.Timeout, _ = ParseDuration(a.QueryTimeout)
	return c
}

// AmbiguousContainers holds skipped containers with the reason. The zero value is empty. All
// methods are safe for concurrent use, and do nothing on nil.
type AmbiguousContainers struct {
	mu            sync.Mutex
	live, history map[usage.ContainerKey]error
}

func (a *AmbiguousContainers) setLive(found map[usage.ContainerKey]error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = found
}

// AddHistory adds the containers without history.
func (a *AmbiguousContainers) AddHistory(d *AmbiguityDetector) {
	if a == nil || len(d.ambiguous) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.history == nil {
		a.history = map[usage.ContainerKey]error{}
	}
	maps.Copy(a.history, d.ambiguous)
}

// Each visits all containers in the order of their names.
func (a *AmbiguousContainers) Each(visit func(c usage.ContainerKey, why error)) {
	if a == nil {
		return
	}
	a.mu.Lock()
	all := map[usage.ContainerKey]error{}
	maps.Copy(all, a.history)
	maps.Copy(all, a.live)
	a.mu.Unlock()
	order := slices.SortedFunc(maps.Keys(all), func(x, y usage.ContainerKey) int {
		return strings.Compare(x.Namespace+"/"+x.Pod+"/"+x.Container, y.Namespace+"/"+y.Pod+"/"+y.Container)
	})
	for _, c := range order {
		visit(c, all[c])
	}
}

// clusterLabel matches the usual names of labels that identify the cluster of a series. Other
// labels, such as zones and nodes, may differ between the pods of one cluster.
var clusterLabel = regexp.MustCompile(`(?i)^((k8s|kube|kubernetes)_?)?cluster(_?(name|id|uid))?$`)

// Cluster returns the cluster labels of a series as sorted PromQL matchers, empty without any.
func Cluster(labels map[string]string) string {
	var names []string
	for name, value := range labels {
		if value != "" && clusterLabel.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = name + "=" + strconv.Quote(labels[name])
	}
	return strings.Join(names, ", ")
}

func multipleClustersError(clusters map[string]bool) error {
	names := slices.Sorted(maps.Keys(clusters))
	return fmt.Errorf("series of several clusters, with %s and with %s: select one, for example with --prometheus-matchers='%s'", names[0], names[1], names[1])
}

// ClusterDetector finds the cluster of pods on a server with several clusters.
type ClusterDetector struct {
	all  map[string]bool
	pods map[string]map[string]bool
}

// Add records the labels of a series. The pod is empty for a series of another pod.
func (c *ClusterDetector) Add(pod string, labels map[string]string) {
	if c.all == nil {
		c.all, c.pods = map[string]bool{}, map[string]map[string]bool{}
	}
	cluster := Cluster(labels)
	c.all[cluster] = true
	if pod == "" {
		return
	}
	if c.pods[pod] == nil {
		c.pods[pod] = map[string]bool{}
	}
	c.pods[pod][cluster] = true
}

// Resolve returns the cluster of the pods. It returns false if no pod is in exactly one cluster. It
// returns an error if series of several clusters cannot be distinguished.
func (c *ClusterDetector) Resolve() (cluster string, known bool, err error) {
	own := map[string]bool{}
	for _, clusters := range c.pods {
		if len(clusters) == 1 {
			maps.Copy(own, clusters)
		}
	}
	if len(own) > 1 { // some exporters lack the label
		delete(own, "")
	}
	for cluster = range own {
		known = true
	}
	all := maps.Clone(c.all)
	delete(all, "")
	switch {
	case len(own) > 1:
		return "", false, multipleClustersError(own)
	case !known && len(all) > 1:
		return "", false, multipleClustersError(all)
	}
	return cluster, known, nil
}

const (
	lower          = "abcdefghijklmnopqrstuvwxyz"
	digits         = "0123456789"
	generatedChars = "bcdfghjklmnpqrstvwxz2456789" // characters of generated name suffixes
)

func consistsOf(text, set string, minLen, maxLen int) bool {
	return minLen <= len(text) && len(text) <= maxLen && strings.Trim(text, set) == ""
}

// CommonPodNames returns the common name prefixes of a pod and the other pods of its workload, the
// longest first. For web-7d9f8b6c5d-x2k4p these are "web-7d9f8b6c5d-" for the same ReplicaSet, and
// "web". A name without a generated or numeric suffix has none.
func CommonPodNames(name string) []string {
	front, end, found := cutLast(name)
	switch {
	case found && consistsOf(end, generatedChars, 5, 5):
		names := []string{front + "-"}
		// The middle part is the hash of a ReplicaSet or the number of a CronJob run.
		if owner, middle, more := cutLast(front); more && (consistsOf(middle, generatedChars, 6, 10) || consistsOf(middle, digits, 8, 12)) {
			front = owner
		}
		return append(names, front)
	case found && consistsOf(end, digits, 1, 10):
		return []string{front}
	}
	return nil
}

func cutLast(name string) (front, end string, found bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// FoldLabelName returns the part of a label name that is the same in all exporters: lower-case
// letters, digits, and underscores for all other characters and between words.
func FoldLabelName(name string) string {
	var folded strings.Builder
	for i, c := range []byte(name) {
		upper := 'A' <= c && c <= 'Z'
		switch {
		case upper && i > 0 && (strings.IndexByte(lower+digits, name[i-1]) >= 0):
			folded.WriteByte('_')
			fallthrough
		case upper:
			folded.WriteByte(c - 'A' + 'a')
		case strings.IndexByte(lower+digits, c) >= 0:
			folded.WriteByte(c)
		default:
			folded.WriteByte('_')
		}
	}
	return folded.String()
}
