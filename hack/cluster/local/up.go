package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/supervise"
)

func up(c command) (int, error) {
	s, err := c.launch()
	if err != nil || s == nil {
		return exitCode(err), err
	}
	if err := s.release(); err != nil {
		return 1, err
	}
	c.announce()
	return 0, nil
}

func runWith(c command) (int, error) {
	if len(c.args) == 0 {
		return 2, errors.New("want a command after --")
	}
	s, err := c.launch()
	if err != nil {
		return exitCode(err), err
	}
	if s == nil {
		return 1, fmt.Errorf("the cluster in %s is running already; run stops its cluster at the end and requires a separate folder", c.folder)
	}
	// If this process is killed, the supervisor sees the end of the lease and stops. Keep the lease
	// reachable, because the garbage collector closes unreachable files.
	defer func() { _ = s.lease.Close() }()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.folder.Kubeconfig(), instance.DirVariable+"="+string(c.folder),
		"PATH="+c.folder.Path("bin")+":"+os.Getenv("PATH"))
	runErr := cmd.Start()
	if runErr == nil {
		go func() {
			for received := range signals {
				// A terminal also sends its interrupt to the command.
				if received == syscall.SIGTERM {
					_ = cmd.Process.Signal(received)
				}
			}
		}()
		runErr = cmd.Wait()
	}
	_, downErr := down(c)
	var exit *exec.ExitError
	if errors.As(runErr, &exit) {
		return max(1, exit.ExitCode()), downErr
	}
	err = errors.Join(runErr, downErr)
	return exitCode(err), err
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

type session struct {
	cmd   *exec.Cmd
	lease *os.File
}

func (s *session) release() error {
	if _, err := s.lease.Write([]byte{supervise.ReleaseByte}); err != nil {
		return fmt.Errorf("the cluster stopped just after its start: %w", err)
	}
	return s.lease.Close()
}

// launch prints the supervisor's progress until the instance is ready. It returns no session if the
// instance runs already. A failed start leaves the logs, an interrupted one nothing.
func (c command) launch() (*session, error) {
	if err := errors.Join(c.options.Complete(), c.options.Validate()); err != nil {
		return nil, err
	}
	if err := c.folder.Claim(); err != nil {
		return nil, err
	}
	lock, err := c.folder.Lock()
	if errors.Is(err, instance.ErrRunning) {
		return nil, c.reportRunning()
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	s, progress, err := c.startSupervisor(lock)
	if err != nil {
		return nil, err
	}
	defer func() { _ = progress.Close() }()
	// After an interrupt the supervisor sees the end of its lease and stops.
	forget := context.AfterFunc(ctx, func() { _ = s.lease.Close() })
	ready := false
	for lines := bufio.NewScanner(progress); !ready && lines.Scan(); {
		if ready = lines.Text() == supervise.ReadyLine; !ready {
			fmt.Println(lines.Text())
		}
	}
	if forget() && ready {
		return s, nil
	}
	_ = lock.Close() // otherwise the supervisor's end would not release it
	waitErr := s.cmd.Wait()
	if ctx.Err() != nil {
		_, err := down(c)
		return nil, errors.Join(errors.New("interrupted"), err)
	}
	return nil, fmt.Errorf("the cluster did not start (see %s): %w", c.folder.Path(instance.LogsDir), waitErr)
}

// reportRunning reports the state of a locked folder.
func (c command) reportRunning() error {
	state, err := c.folder.State()
	if err != nil || !state.Ready {
		return fmt.Errorf("another command is starting or stopping the cluster in %s; wait for it", c.folder)
	}
	fmt.Println("already running")
	c.announce()
	return nil
}

func (c command) announce() {
	fmt.Printf("kubeconfig: %s\nshell:      . %s\nstop:       loadline-cluster down --dir %s\n",
		c.folder.Kubeconfig(), instance.Quote(c.folder.Path("env")), instance.Quote(string(c.folder)))
}

// prepare removes an earlier instance and writes the options of the new one.
func (c command) prepare() error {
	if before, err := c.folder.State(); err == nil {
		reason := before.Stopped
		if reason == "" {
			reason = "it was killed"
		}
		fmt.Printf("clearing up after an earlier cluster in %s: %s\n", c.folder, strings.SplitN(reason, "\n", 2)[0])
		if err := c.folder.KillLeftovers(); err != nil {
			return err
		}
	}
	if err := c.folder.Clear(false); err != nil {
		return err
	}
	if err := os.MkdirAll(c.folder.Path(instance.LogsDir), 0o755); err != nil {
		return fmt.Errorf("make log folder: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	return c.folder.Save(instance.State{Options: c.options, Program: program})
}

// startSupervisor uses a new session, so that interrupts of the terminal do not reach the
// supervisor.
func (c command) startSupervisor(lock *os.File) (*session, *os.File, error) {
	log, err := os.Create(c.folder.Log("supervisor"))
	if err != nil {
		return nil, nil, fmt.Errorf("start supervisor: %w", err)
	}
	defer func() { _ = log.Close() }()
	progress, progressEnd, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start supervisor: %w", err)
	}
	defer func() { _ = progressEnd.Close() }()
	leaseEnd, lease, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start supervisor: %w", err)
	}
	defer func() { _ = leaseEnd.Close() }()
	cmd := exec.Command("/proc/self/exe", "supervise", "--dir", string(c.folder))
	cmd.Args[0] = "loadline-cluster"
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.ExtraFiles = []*os.File{progressEnd, leaseEnd, lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start supervisor: %w", err)
	}
	return &session{cmd: cmd, lease: lease}, progress, nil
}
