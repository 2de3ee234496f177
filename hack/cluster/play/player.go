package play

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"loadline.dev/loadline/hack/cluster/trace"
)

// stepInterval only affects the delay of OOM kills, because a trace is integrated over each step.
const stepInterval = time.Second

type config struct {
	kubeconfig, address, cert, key, traces, realNode string
	speed                                            float64
}

// Main runs the player. args[0] is its name. It returns the exit code.
func Main(args []string) int {
	var c config
	fs := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	fs.StringVar(&c.kubeconfig, "kubeconfig", "", "the cluster to play in")
	fs.StringVar(&c.address, "address", "", "host:port to serve the nodes' pages at")
	fs.StringVar(&c.cert, "tls-cert-file", "", "certificate to serve with")
	fs.StringVar(&c.key, "tls-private-key-file", "", "key of the certificate")
	fs.StringVar(&c.traces, "traces", "", "folder of traces")
	fs.StringVar(&c.realNode, "leave-alone", "", "node whose pods are real")
	fs.Float64Var(&c.speed, "speed", 1, "seconds of a trace per second")
	if err := fs.Parse(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "player:", err)
		return 1
	}
	return 0
}

func (c config) run(ctx context.Context) error {
	rest, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	rest.QPS, rest.Burst = 200, 400
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", c.realNode).String()
	}))
	pods := factory.Core().V1().Pods()
	pods.Informer()
	defer factory.Shutdown() // waits for the informers, so run it after cancel
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	stage := NewStage(trace.NewLibrary(c.traces), c.speed)
	failed := make(chan error, 1)
	server := &http.Server{Addr: c.address, Handler: handler(stage), ReadHeaderTimeout: 10 * time.Second}
	go func() { failed <- server.ListenAndServeTLS(c.cert, c.key) }()
	defer func() { _ = server.Close() }()

	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	p := player{
		client: client, pods: pods.Lister(), stage: stage,
		events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "player"}),
	}
	ticker := time.NewTicker(stepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("serve: %w", err)
		case now := <-ticker.C:
			p.tick(ctx, now)
		}
	}
}

func handler(stage *Stage) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics/nodes/{node}/metrics/resource", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		if _, err := w.Write(stage.Page(r.PathValue("node"), time.Now())); err != nil {
			log.Printf("serve page of node %s: %v", r.PathValue("node"), err)
		}
	})
	return mux
}

type player struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	stage  *Stage
	events record.EventRecorder
}

func (p player) tick(ctx context.Context, now time.Time) {
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		log.Printf("list pods: %v", err)
		return
	}
	kills, faults := p.stage.Step(now, pods)
	for _, f := range faults {
		log.Printf("pod %s/%s: %v", f.Pod.Namespace, f.Pod.Name, f.Err)
		p.events.Event(f.Pod, corev1.EventTypeWarning, "SimulationFault", f.Err.Error())
	}
	for _, k := range kills {
		p.reportKill(k.Pod, k.Container, func() { p.stage.Retry(k) }, kill(ctx, p.client, k.Pod, k.Container, now))
	}
	for _, pod := range pods {
		if container := pod.Annotations[OOMAnnotation]; container != "" && pod.Status.Phase == corev1.PodRunning {
			p.reportKill(pod, container, func() {}, killOnRequest(ctx, p.client, pod, now))
		}
	}
}

// reportKill reports a kill. After a conflict the next tick retries with the changed pod.
func (p player) reportKill(pod *corev1.Pod, container string, retry func(), err error) {
	switch {
	case err == nil:
		log.Printf("pod %s/%s: container %s was OOM killed", pod.Namespace, pod.Name, container)
		p.events.Eventf(pod, corev1.EventTypeWarning, "OOMKilling", "Container %s was OOM killed (simulated)", container)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), errors.Is(err, context.Canceled):
		retry()
	default:
		retry()
		log.Print(err)
		p.events.Event(pod, corev1.EventTypeWarning, "SimulationFault", err.Error())
	}
}
