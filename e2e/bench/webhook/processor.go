package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"loadline.dev/loadline/e2e/harness"
)

func pin(processors string, pid int) error {
	out, err := exec.Command("taskset", "-acp", processors, strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("keep process %d on processors %s: %w: %s", pid, processors, err, out)
	}
	return nil
}

// pinOthers moves a process and its descendants, which are this command and the control plane, off
// the first CPU. With a single CPU it does nothing.
func pinOthers(root int) error {
	if runtime.NumCPU() == 1 {
		fmt.Println("only one CPU: the program shares it with the control plane and the benchmark")
		return nil
	}
	parents, err := parents()
	if err != nil {
		return err
	}
	for pid := range parents {
		for at := pid; at != 0; at = parents[at] {
			if at != root {
				continue
			}
			if err := pin(fmt.Sprintf("1-%d", runtime.NumCPU()-1), pid); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

func parents() (map[int]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := map[int]int{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		// The name before the last parenthesis may contain any text.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 2 {
			return nil, fmt.Errorf("read %s: %q", file, stat)
		}
		if all[pid], err = strconv.Atoi(fields[1]); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	return all, nil
}

// keepAwake keeps all CPUs busy with work of the lowest priority until end is called. In a virtual
// machine, a CPU that sleeps between two requests needs longer to wake up than the webhook needs
// for a review.
func keepAwake() (end func(), err error) {
	var spinning []*exec.Cmd
	end = func() {
		for _, cmd := range spinning {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // returns the kill as an error
		}
	}
	for processor := range runtime.NumCPU() {
		cmd := exec.Command("taskset", "-c", strconv.Itoa(processor), "chrt", "--idle", "0", "sh", "-c", "while :; do :; done")
		// Setsid: the Linux scheduler groups processes by terminal session, and would charge the time
		// of the loop to the group of the measured programs.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			end()
			return nil, fmt.Errorf("keep processor %d awake: %w", processor, err)
		}
		spinning = append(spinning, cmd)
		if err := rank(strconv.Itoa(cmd.Process.Pid), lowestPriority); err != nil {
			end()
			return nil, fmt.Errorf("let processor %d work for others first: %w", processor, err)
		}
	}
	return end, nil
}

// highestPriority and lowestPriority are nice values.
const (
	highestPriority = -20
	lowestPriority  = 19
)

// raisePriority lets this command run before the control plane, which shares its CPU: waiting would
// count as time of the webhook. Without the permission it changes nothing.
func raisePriority() error {
	threads, err := filepath.Glob("/proc/self/task/[0-9]*")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			return err
		}
		switch err := syscall.Setpriority(syscall.PRIO_PROCESS, id, highestPriority); {
		case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
			fmt.Println("no permission to go before the control plane: times may contain waits for it")
			return nil
		case err != nil && !errors.Is(err, syscall.ESRCH):
			return fmt.Errorf("go before the control plane: %w", err)
		}
	}
	return rank("self", highestPriority)
}

// rank sets the priority of the session of a process, if sessions have one.
func rank(pid string, priority int) error {
	err := os.WriteFile("/proc/"+pid+"/autogroup", []byte(strconv.Itoa(priority)), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// profile writes a CPU profile of the program while reviews are sent, and for two more seconds,
// because the end of a profile delays the program.
func profile(ctx context.Context, daemon *harness.Daemon, o options) error {
	if o.profile == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", daemon.Address, int(o.duration.Seconds())+2), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("profile the program: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("profile the program: %w", err)
	}
	return os.WriteFile(o.profile, content, 0o644)
}
