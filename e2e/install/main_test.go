package install

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/e2e/harness"
	"loadline.dev/loadline/hack/document"
)

const root = "../.."

var page = flag.String("page", "", "page into which the times are written, between its two comments; none if empty")

// Set once, before the first test.
var (
	cluster *harness.Cluster
	objects metadata.Interface
	// images is the folder with the image archives of two versions, in before and after.
	images string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	binary := os.Getenv("LOADLINE_CLUSTER")
	images = os.Getenv("LOADLINE_IMAGES")
	if binary == "" || images == "" {
		fmt.Println("skipped: it needs the local control plane and images; run `make e2e-install`, which builds both and sets LOADLINE_CLUSTER and LOADLINE_IMAGES")
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "loadline-install-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		cluster, err = harness.Start(ctx, harness.Options{
			Binary: binary, Root: root, Dir: filepath.Join(dir, "cluster"), Empty: true, Args: []string{"--real-node", "--pod-network"}, Out: os.Stdout,
		})
	}
	if err == nil {
		quiet := rest.CopyConfig(cluster.Config)
		quiet.WarningHandler = rest.NoWarnings{} // about deprecated kinds
		objects, err = metadata.NewForConfig(quiet)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return cluster.Test(ctx, func() int {
		code := m.Run()
		table := times.table()
		fmt.Print(table)
		if code != 0 || *page == "" {
			return code
		}
		if err := document.Fill(*page, "times of an installation", table); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	})
}

type measured struct {
	ways  []string
	steps []string
	took  map[[2]string]time.Duration
}

var times = measured{took: map[[2]string]time.Duration{}}

func (m *measured) since(t *testing.T, way, step string, began time.Time) {
	t.Helper()
	m.add(t, way, step, time.Since(began))
}

func (m *measured) add(t *testing.T, way, step string, took time.Duration) {
	t.Helper()
	if !slices.Contains(m.ways, way) {
		m.ways = append(m.ways, way)
	}
	if !slices.Contains(m.steps, step) {
		m.steps = append(m.steps, step)
	}
	m.took[[2]string{way, step}] = took
	t.Logf("%s: %.1f s", step, took.Seconds())
}

func (m *measured) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "| from - to | %s |\n|---|%s\n", strings.Join(m.ways, " | "), strings.Repeat("---|", len(m.ways)))
	for _, step := range m.steps {
		fmt.Fprintf(&text, "| %s |", step)
		for _, way := range m.ways {
			if took, ok := m.took[[2]string{way, step}]; ok {
				fmt.Fprintf(&text, " %s s |", seconds(took))
			} else {
				text.WriteString(" |")
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

// seconds formats whole seconds, and tenths below ten seconds.
func seconds(d time.Duration) string {
	digits := cmp.Compare(10, d.Seconds())
	return fmt.Sprintf("%.*f", max(0, digits), d.Seconds())
}

// eventually polls until condition returns nil. The last error explains a failure.
func eventually(t *testing.T, limit time.Duration, what string, condition func() error) {
	t.Helper()
	err := condition()
	for deadline := time.Now().Add(limit); err != nil; err = condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: interrupted: %v", what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
