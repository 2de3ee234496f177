package prometheus

import (
	"context"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"loadline.dev/loadline/pkg/core/replay"
	"loadline.dev/loadline/pkg/source/trace"
)

// ArchiveQuery says what is read.
type ArchiveQuery struct {
	Usage   Usage
	Waiting string          // counter of the seconds that work waited for CPU; empty = not asked for
	Pods    labels.Selector // by the labels of pods; nil = all
	// StateMatchers is what series of kube-state-metrics must match, too, as PromQL has it
	// between braces; empty = nothing more.
	StateMatchers string

	Since, Until time.Time     // the first and the last sample; those between are whole steps after Since
	Step         time.Duration // between two samples; that of CPU is a mean over it, that of memory its maximum

	// LeastMemory raises lower samples of memory to it, in bytes.
	LeastMemory float64
}

// ReadArchive yields the containers that a server knows and want accepts (nil = all), and problems. With a warning
// about a container comes the container; otherwise one of the two is nil. It stops early at the end of the
// context, which is no problem.
func ReadArchive(ctx context.Context, client *Client, q ArchiveQuery, want func(workload, container string) bool) iter.Seq2[*replay.Recording, *trace.Problem] {
	return readArchive(ctx, client, q, want, firstPause)
}

func readArchive(ctx context.Context, client *Client, q ArchiveQuery, want func(workload, container string) bool, pause time.Duration) iter.Seq2[*replay.Recording, *trace.Problem] {
	return func(yield func(*replay.Recording, *trace.Problem) bool) {
		r := &archiveReader{
			client: client, query: q, want: want, yield: yield, retries: Retries{Pause: pause, MostFailures: mostFailures},
			times: Times{q.Since, q.Step, int(q.Until.Sub(q.Since)/q.Step) + 1},
		}
		if err := r.read(ctx); err != nil && ctx.Err() == nil {
			r.report(&trace.Problem{Text: err.Error()})
		}
	}
}

type archiveReader struct {
	client  *Client
	query   ArchiveQuery
	want    func(workload, container string) bool // nil = all
	yield   func(*replay.Recording, *trace.Problem) bool
	stopped bool // nobody wants more

	asked   []column // what is asked of each container
	times   Times    // of all samples
	retries Retries
	short   int           // containers with less than two samples
	got     [columns]bool // something was answered
	warned  bool          // the server's own warning was reported
}

// report hands out a problem of the server.
func (r *archiveReader) report(p *trace.Problem) {
	p.File = r.client.Server()
	if !r.stopped {
		r.stopped = !r.yield(nil, p)
	}
}

// read reads everything. An error ends it: nothing more can be had.
func (r *archiveReader) read(ctx context.Context) error {
	subjects, err := r.subjects(ctx)
	if err != nil {
		return err
	}
	for len(subjects) > 0 && !r.stopped {
		n := r.together(subjects)
		b := r.newBatch(subjects[:n])
		subjects = subjects[n:]
		if err := r.fill(ctx, b); err != nil {
			return fmt.Errorf("%w; %d containers are not read", err, len(subjects)+n)
		}
		r.emit(b)
	}
	for _, c := range []column{cpuUse, memoryUse} {
		if !r.got[c] {
			r.report(&trace.Problem{Warning: true, Text: fmt.Sprintf("no container has %s: expected some; a rate needs two scrapes within --history-resolution, which is %s, or more", c, r.query.Step)})
		}
	}
	if r.short > 0 {
		r.report(&trace.Problem{Warning: true, Text: fmt.Sprintf("%d containers are left out because they lived too short: expected two samples, %s apart, or more; "+
			"a finer --history-resolution shows more of them", r.short, r.query.Step)})
	}
	return nil
}

// MostArchiveSamples is how many samples of a container can be read: each is in memory as a
// whole.
const MostArchiveSamples = batchValues

// How much is asked for at once. A batch has at most so many values of each kind, a
// query so many, and so many pods, whose names are in its text.
const (
	batchValues = 1 << 20
	queryValues = 1 << 18
	queryPods   = 100
)

// mostFailures is how many queries in a row may fail before the server is taken to be
// away: one container of a hundred is found with less.
const mostFailures = 16

// together returns how many of the first subjects, of one namespace, make a batch.
func (r *archiveReader) together(subjects []subject) int {
	most := min(max(batchValues/r.times.Count, 1), queryPods, len(subjects))
	for n := range most {
		if subjects[n].key.Namespace != subjects[0].key.Namespace {
			return n
		}
	}
	return most
}
