package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"loadline.dev/loadline/hack/cluster/network"
	"loadline.dev/loadline/hack/cluster/stage"
	"loadline.dev/loadline/hack/cluster/trace"
)

// Options configure one instance.
type Options struct {
	Name       string        `json:"name"` // of cluster and context in the kubeconfig
	Nodes      int           `json:"nodes"`
	NodeCPU    string        `json:"nodeCPU"`    // a quantity
	NodeMemory string        `json:"nodeMemory"` // a quantity
	NodePods   int           `json:"nodePods"`
	Traces     string        `json:"traces,omitempty"` // folder, optional
	Speed      float64       `json:"speed"`            // seconds of a trace per second
	Scrape     time.Duration `json:"scrape"`           // interval of metrics-server
	Audit      bool          `json:"audit,omitempty"`  // log every request
	RealNode   bool          `json:"realNode,omitempty"`
	PodNetwork bool          `json:"podNetwork,omitempty"` // for the real node

	AuditObjectsOf string `json:"auditObjectsOf,omitempty"` // user group whose written objects are logged

	Stages       string `json:"stages,omitempty"`       // folder of more stages, optional
	ResizeCPU    string `json:"resizeCPU,omitempty"`    // maximum CPU of in-place resizes; empty: no limit
	ResizeMemory string `json:"resizeMemory,omitempty"` // the same for memory
}

// minScrape is the minimum of metrics-server.
const minScrape = 10 * time.Second

// AddFlags binds the options to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Name, "name", "loadline", "name of the cluster and the context in the kubeconfig")
	fs.IntVar(&o.Nodes, "nodes", 3, "number of simulated nodes; with --real-node it may be 0, and the real node takes all pods")
	fs.StringVar(&o.NodeCPU, "node-cpu", "8", "cpu of each node")
	fs.StringVar(&o.NodeMemory, "node-memory", "32Gi", "memory of each node")
	fs.IntVar(&o.NodePods, "node-pods", 110, "pods that fit on each node")
	fs.StringVar(&o.Traces, "traces", "", "folder of recorded usage (.csv, .csv.gz) that pods can play")
	fs.Float64Var(&o.Speed, "speed", 1, "seconds of a trace that pass per second, unless a pod overrides it")
	fs.DurationVar(&o.Scrape, "metrics-every", minScrape, "how often metrics-server scrapes; a new pod shows usage after one to two intervals")
	fs.StringVar(&o.Stages, "stages", "", "folder of stages (.yaml) for kwok; one with the name of a built-in stage replaces it")
	fs.StringVar(&o.ResizeCPU, "resize-cpu", "", "a resize to more cpu than this for all containers of a pod is deferred")
	fs.StringVar(&o.ResizeMemory, "resize-memory", "", "a resize to more memory than this for all containers of a pod is deferred")
	fs.BoolVar(&o.RealNode, "real-node", false, "add one real node with containers, "+RealNode+"; needs root, and programs of build.sh --real-node")
	fs.BoolVar(&o.PodNetwork, "pod-network", false, "connect the pods of the real node, and serve Services; needs a network namespace of its own, see unshare --net")
	fs.BoolVar(&o.Audit, "audit", false, "write an audit log of API requests to logs/audit.log, one JSON object per line")
	fs.StringVar(&o.AuditObjectsOf, "audit-objects-of", "", "user group for which --audit also logs written objects, such as system:serviceaccounts:kube-system")
}

// Complete makes paths absolute, because the supervisor has a different working directory.
func (o *Options) Complete() error {
	for flag, folder := range map[string]*string{"traces": &o.Traces, "stages": &o.Stages} {
		if *folder == "" {
			continue
		}
		absolute, err := filepath.Abs(*folder)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		*folder = absolute
	}
	return nil
}

// Validate returns all problems. It reads all traces and stages.
func (o *Options) Validate() error {
	var problems []error
	wrong := func(flag, want string, got any) {
		problems = append(problems, fmt.Errorf("--%s: want %s, got %v", flag, want, got))
	}
	if len(validation.IsDNS1123Subdomain(o.Name)) > 0 {
		wrong("name", "a name of lower case letters, digits, - and .", o.Name)
	}
	if least := o.minNodes(); o.Nodes < least || o.Nodes > 5000 {
		wrong("nodes", fmt.Sprintf("%d to 5000", least), o.Nodes)
	}
	if o.NodePods < 1 {
		wrong("node-pods", "1 or more", o.NodePods)
	}
	if o.Speed <= 0 {
		wrong("speed", "a number above 0", o.Speed)
	}
	if o.Scrape < minScrape {
		wrong("metrics-every", minScrape.String()+" or more (metrics-server refuses less)", o.Scrape)
	}
	for _, q := range []struct {
		flag, quantity string
		optional       bool
	}{
		{"node-cpu", o.NodeCPU, false}, {"node-memory", o.NodeMemory, false}, {"resize-cpu", o.ResizeCPU, true}, {"resize-memory", o.ResizeMemory, true},
	} {
		if q.optional && q.quantity == "" {
			continue
		}
		if amount, err := resource.ParseQuantity(q.quantity); err != nil || amount.Sign() <= 0 {
			wrong(q.flag, "a quantity above 0, such as 8 or 32Gi", q.quantity)
		}
	}
	if o.RealNode && os.Geteuid() != 0 {
		wrong("real-node", "root for it", fmt.Sprintf("user %d", os.Geteuid()))
	}
	if o.PodNetwork && !o.RealNode {
		wrong("pod-network", "--real-node beside it", "none")
	} else if o.PodNetwork {
		if err := network.CheckNamespace(); err != nil {
			problems = append(problems, fmt.Errorf("--pod-network: %w", err))
		}
	}
	if o.Traces != "" {
		if info, err := os.Stat(o.Traces); err != nil || !info.IsDir() {
			wrong("traces", "a folder", o.Traces)
		} else if err := trace.NewLibrary(o.Traces).Check(); err != nil {
			problems = append(problems, fmt.Errorf("--traces: %w", err))
		}
	}
	if o.Stages != "" {
		if info, err := os.Stat(o.Stages); err != nil || !info.IsDir() {
			wrong("stages", "a folder", o.Stages)
		} else if _, err := stage.Read(os.DirFS(o.Stages)); err != nil {
			problems = append(problems, fmt.Errorf("--stages: %w", err))
		}
	}
	return errors.Join(problems...)
}

func (o *Options) minNodes() int {
	if o.RealNode {
		return 0
	}
	return 1
}
