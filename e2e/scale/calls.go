package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"loadline.dev/loadline/e2e/harness"
)

// calls are requests to the API server.
type calls struct {
	status, checkpoint, usage int
	other                     map[string]int // by verb and resource
}

// countCalls counts what an account asked for, in a part of the audit log.
func countCalls(path, account string, from, to int64) (calls, error) {
	c := calls{other: map[string]int{}}
	log, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("open the audit log: %w", err)
	}
	defer log.Close()
	user := "system:serviceaccount:" + harness.SystemNamespace + ":" + account
	lines := bufio.NewScanner(io.NewSectionReader(log, from, to-from))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Stage, Verb, RequestURI string
			User                    struct{ Username string }
			ObjectRef               *struct{ APIGroup, Resource, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the log was being written where the part begins or ends
		}
		// A watch is logged when it starts, too.
		if event.User.Username != user || event.Stage != "ResponseComplete" {
			continue
		}
		resource := event.RequestURI
		if ref := event.ObjectRef; ref != nil {
			resource = ref.Resource
			if ref.Subresource != "" {
				resource += "/" + ref.Subresource
			}
		}
		switch {
		case event.Verb == "patch" && resource == "verticalpodautoscalers/status":
			c.status++
		case event.Verb != "watch" && event.Verb != "list" && resource == "verticalpodautoscalercheckpoints":
			c.checkpoint++
		case event.ObjectRef != nil && event.ObjectRef.APIGroup == "metrics.k8s.io":
			c.usage++
		default:
			c.other[event.Verb+" "+resource]++
		}
	}
	return c, lines.Err()
}
