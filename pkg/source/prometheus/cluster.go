package prometheus

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// clusterLabel matches the usual names of labels that identify the cluster of a series. Other labels,
// such as those of zones and nodes, may differ between the pods of one cluster.
var clusterLabel = regexp.MustCompile(`(?i)^((k8s|kube|kubernetes)_?)?cluster(_?(name|id|uid))?$`)

// Cluster returns the labels of a series that identify its cluster, as matchers of PromQL, sorted by name.
// Empty: it has none.
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

// severalClusters describes series of several clusters, and which flag selects one.
func severalClusters(clusters map[string]bool) error {
	names := slices.Sorted(maps.Keys(clusters))
	return fmt.Errorf("series of several clusters, with %s and with %s: select one, for example with --prometheus-matchers='%s'", names[0], names[1], names[1])
}

// Clusters finds out which of the clusters in a server is the one of some pods. The zero value has seen no
// series.
type Clusters struct {
	all  map[string]bool
	pods map[string]map[string]bool // clusters by pod
}

// Add takes the labels of a series. The pod is empty for a series of another pod.
func (c *Clusters) Add(pod string, labels map[string]string) {
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

// Own returns the cluster of the pods, and false if no series of theirs shows one alone. A pod whose name
// several clusters have decides nothing. An error means that series of several clusters cannot be told apart.
func (c *Clusters) Own() (cluster string, known bool, err error) {
	own := map[string]bool{}
	for _, clusters := range c.pods {
		if len(clusters) == 1 {
			maps.Copy(own, clusters)
		}
	}
	if len(own) > 1 { // some exporters do not name it
		delete(own, "")
	}
	for cluster = range own {
		known = true
	}
	all := maps.Clone(c.all)
	delete(all, "")
	switch {
	case len(own) > 1:
		return "", false, severalClusters(own)
	case !known && len(all) > 1:
		return "", false, severalClusters(all)
	}
	return cluster, known, nil
}
