package supervise

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"loadline.dev/loadline/hack/cluster/cgroup"
	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/realnode"
)

// RealNode is the name of the component, and of the port of its kubelet.
const RealNode = "real-node"

// realNode returns the steps that start the real node, which becomes ready later, see awaitNodes.
func (s *supervisor) realNode(p plan, cluster *bootstrap) []step {
	var runtime, connecting deb.Unpacked
	programs := filepath.Dir(s.state.Program)
	steps := []step{
		{"packages of the real node unpacked", func(ctx context.Context) (err error) {
			if err := realnode.CheckPrograms(programs); err != nil {
				return err
			}
			if runtime, err = deb.Fetch(ctx, deb.Runtime...); err != nil || !s.state.Options.PodNetwork {
				return err
			}
			connecting, err = deb.Fetch(ctx, deb.Network...)
			return err
		}},
		{"real node started", func(ctx context.Context) error {
			if err := realnode.Announce(ctx, cluster.client, s.state.Options.Nodes == 0); err != nil {
				return err
			}
			group, err := cgroup.New()
			if err != nil {
				return err
			}
			s.group = &group
			return s.start(p.realNode(programs, append(runtime, connecting...), group))
		}},
	}
	if s.state.Options.PodNetwork {
		steps = append(steps, step{"kube-proxy of the real node started", func(context.Context) error {
			nft, err := connecting.Program("nft")
			if err != nil {
				return err
			}
			return s.start(p.kubeProxy(nft, connecting))
		}})
	}
	return steps
}

// awaitService waits for the API server at the address of its Service.
func awaitService(ctx context.Context) error {
	const limit = time.Second // connections hang until a rule redirects them
	return await(ctx, func(context.Context) (bool, error) {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(instance.ServiceIP, "443"), limit)
		if err != nil {
			return false, err
		}
		return true, connection.Close()
	})
}

// realNode uses a new process namespace, so that the kernel ends all containers with it, and new
// mounts.
func (p plan) realNode(programs string, runtime deb.Unpacked, group cgroup.Group) component {
	return component{
		name:       RealNode,
		flags:      realnode.Flags(p.folder, programs, runtime, group.Path(), p.ports[RealNode]),
		namespaces: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
	}
}

func (s *supervisor) clear() {
	stop(s.children)
	if s.group == nil {
		return
	}
	if err := s.group.Remove(); err != nil {
		s.logf("%v", fmt.Errorf("clear up after the real node: %w", err))
	}
	s.group = nil
}
