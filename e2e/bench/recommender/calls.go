package recommender

import (
	"time"

	"loadline.dev/loadline/e2e/harness"
)

type calls struct {
	status, checkpoint, usage int
	other                     map[string]int // by verb and resource
}

func countCalls(cluster *harness.Cluster, account string, from, to time.Time) (calls, error) {
	c := calls{other: map[string]int{}}
	err := cluster.Requests(func(r harness.Request) {
		// The start of a watch is logged too.
		if r.Account != account || !r.Complete || r.At.Before(from) || r.At.After(to) {
			return
		}
		switch {
		case r.Verb == "patch" && r.Resource == "verticalpodautoscalers/status":
			c.status++
		case r.Verb != "watch" && r.Verb != "list" && r.Resource == "verticalpodautoscalercheckpoints":
			c.checkpoint++
		case r.Group == "metrics.k8s.io":
			c.usage++
		default:
			c.other[r.Verb+" "+r.Resource]++
		}
	})
	return c, err
}
