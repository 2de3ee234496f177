package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"loadline.dev/loadline/hack/cluster/instance"
)

// errPortTaken is returned if another program took a port before its component listened.
var errPortTaken = errors.New("a port was taken by another program")

// stopTimeout is the time for a component to end after SIGTERM. It need not save data.
const stopTimeout = 2 * time.Second

type child struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed at the end, after err is set
	err   error
}

// spawner starts children that die with this process. The kernel binds them to the thread that
// started them, so all are started on one permanent thread.
type spawner struct {
	folder  instance.Folder
	program string
	work    chan func()
	ended   chan *child
}

func newSpawner(ctx context.Context, folder instance.Folder) *spawner {
	// The program file may be replaced while the instance runs.
	s := &spawner{folder: folder, program: "/proc/self/exe", work: make(chan func()), ended: make(chan *child, 16)}
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case do := <-s.work:
				do()
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

func (s *spawner) start(c component) (*child, error) {
	log, err := os.Create(s.folder.Log(c.name))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.program, append([]string{c.name}, c.flags...)...)
	cmd.Args[0] = "loadline-cluster"
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, string(s.folder)
	// Do not inherit the user's environment.
	cmd.Env = append([]string{"HOME=" + string(s.folder), "PATH=" + os.Getenv("PATH"), "TZ=UTC"}, c.environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: c.namespaces}
	started := make(chan error)
	s.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	ch := &child{name: c.name, cmd: cmd, ended: make(chan struct{})}
	go func() {
		ch.err = cmd.Wait()
		close(ch.ended)
		s.ended <- ch
	}()
	return ch, s.folder.SavePID(c.name, cmd.Process.Pid)
}

func (s *spawner) failure(ch *child) error {
	end := "it ended by itself"
	if ch.err != nil {
		end = ch.err.Error()
	}
	const lines = 15
	tail := s.folder.Tail(ch.name, lines)
	err := fmt.Errorf("%s died: %s; the end of %s:\n%s", ch.name, end, s.folder.Log(ch.name), tail)
	if strings.Contains(tail, "address already in use") {
		return errors.Join(errPortTaken, err)
	}
	return err
}

func stop(children []*child) {
	for i := len(children) - 1; i >= 0; i-- {
		ch := children[i]
		// After an error the child has ended, and the wait below returns.
		_ = ch.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ch.ended:
		case <-time.After(stopTimeout):
			_ = ch.cmd.Process.Kill()
			<-ch.ended
		}
	}
}
