package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"loadline.dev/loadline/hack/cluster/cgroup"
	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/network"
	"loadline.dev/loadline/hack/cluster/pki"
	"loadline.dev/loadline/hack/cluster/realnode"
)

// File descriptors that the supervisor inherits from `up`.
const (
	ProgressFD = 3 // the supervisor writes progress lines
	LeaseFD    = 4 // `up` writes ReleaseByte; end of file means it died
	LockFD     = 5 // the lock on the folder
)

const (
	// ReleaseByte is the byte that `up` writes to the lease.
	ReleaseByte = 'r'
	// ReadyLine is the last line of progress after a successful start.
	ReadyLine     = "READY"
	startAttempts = 3
)

type supervisor struct {
	folder   instance.Folder
	state    instance.State
	progress io.Writer
	began    time.Time
	children []*child
	spawner  *spawner
	group    *cgroup.Group // for the pods of the real node
}

// Main runs the supervisor and returns the exit code.
func Main(folder instance.Folder) int {
	for _, fd := range []int{ProgressFD, LeaseFD, LockFD} {
		// Children must not inherit these: the lock must end with this process.
		syscall.CloseOnExec(fd)
	}
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	ctx, abandon := context.WithCancelCause(ctx)
	go watchLease(os.NewFile(LeaseFD, "lease"), abandon)

	progress := os.NewFile(ProgressFD, "progress")
	s := &supervisor{folder: folder, progress: io.MultiWriter(os.Stdout, &optionalWriter{progress}), began: time.Now()}
	err := s.run(ctx, func() { _ = progress.Close() })
	if err == nil {
		s.logf("stopped")
		return 0
	}
	s.logf("%v", err)
	s.state.Ready, s.state.Stopped = false, err.Error()
	if err := folder.Save(s.state); err != nil {
		s.logf("%v", err)
	}
	return 1
}

// watchLease stops the instance if the command that started it ends without releasing it.
func watchLease(lease io.Reader, abandon context.CancelCauseFunc) {
	if n, _ := lease.Read(make([]byte, 1)); n == 0 {
		abandon(errors.New("the command that started it has ended"))
	}
}

// optionalWriter discards output after the reader of the pipe has ended.
type optionalWriter struct{ out io.Writer }

func (u *optionalWriter) Write(p []byte) (int, error) {
	if _, err := u.out.Write(p); err != nil {
		u.out = io.Discard
	}
	return len(p), nil
}

func (s *supervisor) logf(format string, args ...any) {
	fmt.Fprintf(s.progress, "%5.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// run returns nil after a requested stop, and otherwise the reason.
func (s *supervisor) run(ctx context.Context, ready func()) error {
	var err error
	if s.state, err = s.folder.State(); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := s.attempt(ctx, ready)
		if !errors.Is(err, errPortTaken) || attempt == startAttempts || s.state.Ready {
			return err
		}
		s.logf("%v: trying other ports", strings.SplitN(err.Error(), "\n", 2)[0])
	}
}

// attempt starts all components once. After success it returns when the instance stops.
func (s *supervisor) attempt(ctx context.Context, ready func()) error {
	all, cancel := context.WithCancelCause(ctx)
	// The thread that started the children must outlive them.
	keep, release := context.WithCancel(context.Background())
	defer release()
	s.children, s.spawner = nil, newSpawner(keep, s.folder)
	defer s.clear()
	watched := make(chan error, 1)
	go func() {
		select {
		case ch := <-s.spawner.ended:
			err := s.spawner.failure(ch)
			watched <- err
			cancel(err)
		case <-all.Done():
			watched <- nil
		}
	}()
	err := s.bringUp(all)
	if err == nil {
		s.state.Ready = true
		err = s.folder.Save(s.state)
	}
	if err == nil {
		fmt.Fprintln(s.progress, ReadyLine)
		ready()
		<-all.Done()
	}
	cancel(err)
	switch died := <-watched; {
	case died != nil:
		return died
	case ctx.Err() != nil:
		s.state.Ready, s.state.Stopped = false, context.Cause(ctx).Error()
		s.logf("stopping: %s", s.state.Stopped)
		return s.folder.Save(s.state)
	default:
		return err
	}
}

func (s *supervisor) prepare(now time.Time) (*pki.Authority, error) {
	if err := s.folder.Clear(true); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.folder.Path(instance.LogsDir), 0o755); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	if err := s.folder.SavePID("supervisor", os.Getpid()); err != nil {
		return nil, err
	}
	if s.state.Options.PodNetwork {
		if err := network.Prepare(); err != nil {
			return nil, err
		}
	}
	var err error
	if s.state.Ports, err = instance.FreePorts(portNames()); err != nil {
		return nil, err
	}
	authority, err := pki.NewAuthority(now)
	if err != nil {
		return nil, err
	}
	return authority, errors.Join(
		s.folder.WritePKI(authority, now),
		s.folder.WriteKubeconfigs(authority, s.state.Options.Name, s.state.Ports["kube-apiserver"], now),
		s.folder.WriteTools(s.state),
		s.folder.Save(s.state),
	)
}

// step is a part of the start, named after its result.
type step struct {
	result string
	do     func(context.Context) error
}

func (s *supervisor) bringUp(ctx context.Context) error {
	authority, err := s.prepare(time.Now())
	if err != nil {
		return err
	}
	p := plan{folder: s.folder, options: s.state.Options, ports: s.state.Ports}
	if err := s.start(p.etcd(), p.apiServer()); err != nil {
		return err
	}
	cluster, err := newBootstrap(s.folder, s.state.Ports["metrics-server"], authority.PEM)
	if err != nil {
		return err
	}
	steps := []step{{"API server ready", cluster.awaitServer}}
	nodes := s.state.Options.Nodes
	if s.state.Options.RealNode {
		// It takes longest, so it starts first.
		steps = append(steps, s.realNode(p, cluster)...)
		nodes++
	}
	steps = append(steps, []step{
		{"controllers, scheduler started", func(context.Context) error { return s.start(p.controllers(), p.scheduler()) }},
		{"stages of the simulation applied", func(ctx context.Context) error { return cluster.applyStages(ctx, s.state.Options) }},
		{"kwok, player, metrics-server started", func(context.Context) error { return s.start(p.kwok(), p.player(), p.metricsServer()) }},
		{fmt.Sprintf("%d nodes created", s.state.Options.Nodes), func(ctx context.Context) error { return cluster.createNodes(ctx, s.state.Options) }},
		{"metrics API registered", cluster.registerMetrics},
		{"nodes ready", func(ctx context.Context) error { return cluster.awaitNodes(ctx, nodes) }},
		{"default service account there", cluster.awaitServiceAccount},
		{"metrics API available", cluster.awaitMetrics},
	}...)
	if s.state.Options.PodNetwork {
		steps = append(steps, step{"Services answer", awaitService})
	}
	if s.state.Options.RealNode {
		steps = append(steps, step{"real node runs pods", func(ctx context.Context) error { return realnode.Try(ctx, cluster.client) }})
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("waiting for %q: %w", step.result, err)
		}
		s.logf("%s", step.result)
	}
	return nil
}

func (s *supervisor) start(components ...component) error {
	for _, c := range components {
		ch, err := s.spawner.start(c)
		if ch != nil {
			s.children = append(s.children, ch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
