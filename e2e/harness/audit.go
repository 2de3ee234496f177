package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Request is a line of the audit log: a request of one of the programs to the API server.
type Request struct {
	Account         string // name of the service account
	Verb            string
	Group, Resource string // with subresource, empty for paths such as /version
	URI             string
	At              time.Time
	Complete        bool // false: start of a watch, logged again when it ends
	Forbidden       bool
}

// auditEvent holds the decoded fields of a line of the audit log.
type auditEvent struct {
	Stage, Verb string
	User        struct{ Username string }
	// ObjectRef is absent for paths such as /version.
	ObjectRef                *struct{ APIGroup, Resource, Subresource, Namespace string }
	RequestURI               string
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
	Annotations              map[string]string
	// ResponseObject is logged only for the groups of --audit-objects-of.
	ResponseObject json.RawMessage
	ResponseStatus *struct{ Code int }
}

// Accounts are the service accounts of a namespace whose names share a prefix.
type Accounts struct{ Namespace, Prefix string }

// programs are the service accounts of the programs in deploy/.
var programs = Accounts{SystemNamespace, "vpa-"}

// Requests calls take for all requests of the programs of deploy/ so far.
func (c *Cluster) Requests(take func(Request)) error { return c.RequestsOf(programs, take) }

// RequestsOf calls take for all requests of the accounts so far.
func (c *Cluster) RequestsOf(accounts Accounts, take func(Request)) error {
	users := "system:serviceaccount:" + accounts.Namespace + ":"
	return c.eachEvent(users+accounts.Prefix, func(e *auditEvent) {
		if account, ok := strings.CutPrefix(e.User.Username, users); ok && strings.HasPrefix(account, accounts.Prefix) {
			take(e.request(account))
		}
	})
}

// Written calls take for each object version written by the programs of deploy/ so far, with its
// stored size: pods as protocol buffers, all others as JSON, which overstates the size of some. The
// cluster must run with --audit-objects-of for their group.
func (c *Cluster) Written(take func(account, resource string, bytes int)) error {
	var broken error
	users := "system:serviceaccount:" + programs.Namespace + ":"
	err := c.eachEvent(`"level":"RequestResponse"`, func(e *auditEvent) {
		account, _ := strings.CutPrefix(e.User.Username, users)
		if !strings.HasPrefix(account, programs.Prefix) || e.ObjectRef == nil || e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 || strings.Contains(e.RequestURI, "dryRun=") ||
			e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == "eviction" {
			return
		}
		size := len(e.ResponseObject)
		if e.ObjectRef.Resource == "pods" {
			var pod corev1.Pod
			broken = errors.Join(broken, json.Unmarshal(e.ResponseObject, &pod))
			size = pod.Size()
		}
		take(account, e.ObjectRef.Resource, size)
	})
	return errors.Join(err, broken)
}

// PodCreation is one creation of a pod as seen by the API server.
type PodCreation struct {
	At      time.Time
	Total   time.Duration // from the request to the response
	Webhook time.Duration // in mutating webhooks, 0 if Total is below 0.5 s
}

// PodCreations calls take for each creation of a pod in a namespace so far.
func (c *Cluster) PodCreations(namespace string, take func(PodCreation)) error {
	return c.eachEvent(`"namespace":"`+namespace+`"`, func(e *auditEvent) {
		if e.Verb != "create" || e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || e.ObjectRef.Subresource != "" || e.ObjectRef.Namespace != namespace {
			return
		}
		webhook, _ := time.ParseDuration(e.Annotations["apiserver.latency.k8s.io/mutating-webhook"])
		take(PodCreation{e.RequestReceivedTimestamp, e.StageTimestamp.Sub(e.RequestReceivedTimestamp), webhook})
	})
}

// eachEvent calls take for each event of the audit log whose line contains the text.
func (c *Cluster) eachEvent(text string, take func(*auditEvent)) error {
	// A full log is renamed to audit-<time>.log, and a new one begins.
	files, err := filepath.Glob(filepath.Join(c.Dir, "logs", "audit*.log"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("read the audit log: %w in %s", os.ErrNotExist, filepath.Join(c.Dir, "logs"))
	}
	for _, file := range files {
		if err := readAudit(file, text, take); err != nil {
			return fmt.Errorf("read the audit log %s: %w", file, err)
		}
	}
	return nil
}

func readAudit(file, text string, take func(*auditEvent)) error {
	log, err := os.Open(file)
	if err != nil {
		return err
	}
	defer log.Close()
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest is an incomplete line
		}
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(text)) {
			continue
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		take(&event)
	}
}

func (e *auditEvent) request(account string) Request {
	r := Request{
		Account: account, Verb: e.Verb, URI: e.RequestURI, At: e.RequestReceivedTimestamp,
		Complete:  e.Stage != "ResponseStarted",
		Forbidden: e.Annotations["authorization.k8s.io/decision"] == "forbid",
	}
	if ref := e.ObjectRef; ref != nil {
		r.Group, r.Resource = ref.APIGroup, ref.Resource
		if ref.Subresource != "" {
			r.Resource += "/" + ref.Subresource
		}
	}
	return r
}
