package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Shipped returns the container of a program in deploy/loadline.yaml.
func (c *Cluster) Shipped(program string) (*corev1.Container, error) {
	text, err := os.ReadFile(filepath.Join(c.Root, "deploy", "loadline.yaml"))
	if err != nil {
		return nil, err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var d appsv1.Deployment
		if err := documents.Decode(&d); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("deploy/loadline.yaml: no Deployment of %s", program)
		} else if err != nil {
			return nil, fmt.Errorf("deploy/loadline.yaml: %w", err)
		}
		if d.Kind == "Deployment" && d.Name == "vpa-"+program {
			return &d.Spec.Template.Spec.Containers[0], nil
		}
	}
}

// ShippedDaemon prepares a program with the arguments, environment and memory limit of
// deploy/loadline.yaml, and further arguments.
func (c *Cluster) ShippedDaemon(ctx context.Context, program, label string, args ...string) (*Daemon, error) {
	container, err := c.Shipped(program)
	if err != nil {
		return nil, err
	}
	d, err := c.Daemon(ctx, program, label, append(append([]string{}, container.Args...), args...)...)
	if err != nil {
		return nil, err
	}
	for _, v := range container.Env {
		if v.Value != "" {
			d.env = append(d.env, v.Name+"="+v.Value)
		}
	}
	d.MemoryLimit = container.Resources.Limits.Memory().Value()
	return d, nil
}

// Confine makes the kernel enforce the memory limit of a program from its next start, and returns a
// function that removes the cgroup. It fails if this user cannot create cgroups.
func (d *Daemon) Confine() (release func(), err error) {
	parent, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		parent, limit = "/sys/fs/cgroup", "memory.max"
	}
	group := filepath.Join(parent, fmt.Sprintf("loadline-%d-%s", os.Getpid(), d.Name))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	release = func() { _ = os.Remove(group) } // works after the process has ended
	if err := os.WriteFile(filepath.Join(group, limit), []byte(strconv.FormatInt(d.MemoryLimit, 10)), 0o644); err != nil {
		release()
		return nil, err
	}
	d.group = filepath.Join(group, "cgroup.procs")
	return release, nil
}

// Favor gives the API server, etcd and some programs priority for CPU time over all other
// processes, as if controllers, nodes and clients ran elsewhere. It returns a function that removes
// the cgroup. It fails if this user cannot create cgroups.
func (c *Cluster) Favor(programs ...*Daemon) (release func(), err error) {
	group := filepath.Join("/sys/fs/cgroup/cpu", fmt.Sprintf("loadline-%d-favored", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	var pids []string
	for _, d := range programs {
		pids = append(pids, strconv.Itoa(d.PID()))
	}
	for _, component := range []string{"etcd", "kube-apiserver"} {
		text, problem := os.ReadFile(filepath.Join(c.Dir, "pids", component+".pid"))
		pid, _, _ := strings.Cut(string(text), " ")
		pids, err = append(pids, pid), errors.Join(err, problem)
	}
	move := func(to string) (err error) {
		for _, pid := range pids {
			err = errors.Join(err, os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0o644))
		}
		return err
	}
	release = func() {
		_ = move(filepath.Dir(group)) // fails for ended processes
		_ = os.Remove(group)
	}
	// 30 times the shares of a thread outside of the cgroup: the test reads all writes of the
	// programs, and must keep up.
	err = errors.Join(err, os.WriteFile(filepath.Join(group, "cpu.shares"), []byte("30720"), 0o644), move(group))
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
