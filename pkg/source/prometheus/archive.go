package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
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
	// Want tells which containers are read; nil = all.
	Want func(workload, container string) bool
}

// ReadArchive yields the containers that a server knows, and its problems. With a warning
// about a container comes the container; otherwise one of the two is nil. It stops
// early at the end of the context, which is no problem.
func ReadArchive(ctx context.Context, client *Client, q ArchiveQuery) iter.Seq2[*replay.Recording, *trace.Problem] {
	return readArchive(ctx, client, q, leastPause)
}

func readArchive(ctx context.Context, client *Client, q ArchiveQuery, pause time.Duration) iter.Seq2[*replay.Recording, *trace.Problem] {
	return func(yield func(*replay.Recording, *trace.Problem) bool) {
		r := &archiveReader{client: client, query: q, yield: yield, pause: pause, steps: int(q.Until.Sub(q.Since)/q.Step) + 1}
		if err := r.read(ctx); err != nil && ctx.Err() == nil {
			r.tell(&trace.Problem{Text: err.Error()})
		}
	}
}

type archiveReader struct {
	client  *Client
	query   ArchiveQuery
	yield   func(*replay.Recording, *trace.Problem) bool
	stopped bool // nobody wants more

	asked  []column      // what is asked of each container
	pause  time.Duration // before a query is sent again
	steps  int           // in the grid of times
	failed int           // queries in a row
	short  int           // containers with less than two samples
	got    [columns]bool // something was answered
	warned bool          // the server's own warning was told
}

// tell hands out a problem of the server.
func (r *archiveReader) tell(p *trace.Problem) {
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
			r.tell(&trace.Problem{Warning: true, Text: fmt.Sprintf("no container has %s: expected some; a rate needs two scrapes within --history-resolution, which is %s, or more", c, r.query.Step)})
		}
	}
	if r.short > 0 {
		r.tell(&trace.Problem{Warning: true, Text: fmt.Sprintf("%d containers are left out because they lived too short: expected two samples, %s apart, or more; "+
			"a finer --history-resolution shows more of them", r.short, r.query.Step)})
	}
	return nil
}

// MostArchiveSamples is how many samples of a container can be read: each is in memory as a
// whole.
const MostArchiveSamples = batchValues

// How much is asked for at once. A batch has at most so many values of each kind, a
// query so many, and so many pods, whose names are in its text. Prometheus refuses
// more than 11,000 points a series.
const (
	batchValues = 1 << 20
	queryValues = 1 << 18
	queryPods   = 100
	mostSteps   = 10_000
)

// together tells how many of the first subjects, of one namespace, make a batch.
func (r *archiveReader) together(subjects []subject) int {
	most := min(max(batchValues/r.steps, 1), queryPods, len(subjects))
	for n := range most {
		if subjects[n].key.Namespace != subjects[0].key.Namespace {
			return n
		}
	}
	return most
}

// How often a query is sent, to a server that is busy and to others, and how many in a
// row may fail before the server is taken to be away: one container of a hundred is
// found with less. A pause lasts no longer than slack of the first ones, or as long as
// the server says, up to longestPause.
const (
	tries        = 3
	busyTries    = 8
	leastPause   = time.Second
	slack        = 120
	longestPause = 5 * time.Minute
	patience     = 16
)

// persist calls ask until it succeeds, or what it fails with will not change.
func (r *archiveReader) persist(ctx context.Context, ask func() error) error {
	pause := r.pause
	for try := 1; ; try++ {
		err := ask()
		if err == nil || ctx.Err() != nil || try >= attempts(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(pause, min(wanted(err), longestPause))):
		}
		pause = min(4*pause, slack*r.pause)
	}
}

// attempts is how often a query is sent that fails with an error.
func attempts(err error) int {
	switch {
	case refused(err, http.StatusTooManyRequests):
		return busyTries
	case hopeless(err) || Heavy(err) && !refused(err, http.StatusServiceUnavailable):
		return 1
	}
	return tries
}

// wanted is the pause for which a server asks.
func wanted(err error) time.Duration {
	var said *Error
	if errors.As(err, &said) {
		return said.Later
	}
	return 0
}

// refused tells whether a server refused a query with one of some codes.
func refused(err error, codes ...int) bool {
	var said *Error
	return errors.As(err, &said) && slices.Contains(codes, said.Code)
}

// hopeless tells whether a server would give the same answer to any query like this
// one: it does not know us, or is none.
func hopeless(err error) bool {
	return refused(err, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound)
}

// final tells whether nothing more is to be had from a server: it is away, or has too
// much to do for long, or would refuse a part as well.
func final(err error) bool {
	var said *Error
	there := errors.As(err, &said) || Heavy(err) || errors.Is(err, ErrCut) || errors.Is(err, io.ErrUnexpectedEOF)
	return !there || hopeless(err) || refused(err, http.StatusTooManyRequests)
}

// apart asks for a batch, and for its halves where that fails. One container for which
// it fails is handed to alone. An error ends it all.
func (r *archiveReader) apart(ctx context.Context, b archiveBatch, ask func(archiveBatch) error, alone func(*member, error) error) error {
	if len(b) == 1 && b[0].wrong != nil {
		return nil //nolint:nilerr // it is told when the batch is handed out, and the others go on
	}
	err := r.persist(ctx, func() error { return ask(b) })
	if err == nil {
		r.failed = 0
		return nil
	}
	r.failed++
	switch {
	case ctx.Err() != nil || final(err):
		return err
	case r.failed >= patience:
		return fmt.Errorf("%d queries one after the other failed: %w", r.failed, err)
	case len(b) == 1:
		return alone(b[0], err)
	}
	middle := len(b) / 2
	if err := r.apart(ctx, b[:middle], ask, alone); err != nil {
		return err
	}
	return r.apart(ctx, b[middle:], ask, alone)
}
