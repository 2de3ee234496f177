package supervise

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	"loadline.dev/loadline/hack/cluster/cgroup"
	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/realnode"
)

// realNode is the component, and the name of its port, which is the kubelet's.
const realNode = "real-node"

// realNode starts the real node. It is not ready at once: see awaitNodes.
func (s *supervisor) realNode(p plan, cluster *bootstrap) []step {
	var runtime deb.Unpacked
	programs := filepath.Dir(s.state.Program)
	return []step{
		{"packages of the real node unpacked", func(ctx context.Context) (err error) {
			if err := realnode.CheckPrograms(programs); err != nil {
				return err
			}
			runtime, err = deb.Fetch(ctx)
			return err
		}},
		{"real node started", func(ctx context.Context) error {
			if err := realnode.Announce(ctx, cluster.client); err != nil {
				return err
			}
			group, err := cgroup.New()
			if err != nil {
				return err
			}
			s.group = &group
			return s.start(p.realNode(programs, runtime, group))
		}},
	}
}

// realNode is the first process of its own process namespace, so that the
// kernel ends all containers with it, and has its own mounts.
func (p plan) realNode(programs string, runtime deb.Unpacked, group cgroup.Group) component {
	return component{
		name:       realNode,
		flags:      realnode.Flags(p.folder, programs, runtime, group.Path(), p.ports[realNode]),
		namespaces: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
	}
}

// clear stops all components and removes what outlives them.
func (s *supervisor) clear() {
	stop(s.children)
	if s.group == nil {
		return
	}
	if err := s.group.Remove(); err != nil {
		s.say("%v", fmt.Errorf("clear up after the real node: %w", err))
	}
	s.group = nil
}
