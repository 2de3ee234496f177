package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/realnode"
)

// realNode is the component, and the name of its port, which is the kubelet's.
const realNode = "real-node"

// realNode starts the real node. It is not ready at once: see awaitNodes.
func (s *supervisor) realNode(p plan, cluster *bootstrap) []step {
	var runtime realnode.Runtime
	return []step{
		{"packages of the real node unpacked", func(ctx context.Context) (err error) {
			runtime, err = realnode.Fetch(ctx)
			return err
		}},
		{"real node started", func(ctx context.Context) error {
			if err := cluster.createRealNode(ctx); err != nil {
				return err
			}
			if err := s.makeGroup(); err != nil {
				return err
			}
			return s.start(p.realNode(filepath.Dir(s.state.Program), runtime, *s.group))
		}},
	}
}

// makeGroup makes the control group of the node's pods, after those that killed
// instances left were removed.
func (s *supervisor) makeGroup() error {
	if err := realnode.RemoveStale(); err != nil {
		return err
	}
	self, err := instance.ProcessOf(os.Getpid())
	if err != nil {
		return err
	}
	group, err := realnode.NewGroup(self)
	if err != nil {
		return err
	}
	s.group = &group
	return nil
}

// realNode is the first process of its own process namespace, so that the
// kernel ends all containers with it, and has its own mounts.
func (p plan) realNode(programs string, runtime realnode.Runtime, group realnode.Group) component {
	return component{
		name:       realNode,
		flags:      realnode.Flags(p.folder, programs, runtime, group, p.ports[realNode]),
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
