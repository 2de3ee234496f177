package testkit

import (
	"context"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// FrozenLeases is a client that blocks updates of Leases while Frozen is true, until Thaw is
// closed. To a leader elector its process appears to be stopped, while all other work continues.
type FrozenLeases struct {
	kubernetes.Interface
	Frozen *atomic.Bool
	Thaw   chan struct{}
}

// CoordinationV1 returns the client of Leases.
func (f FrozenLeases) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return frozenCoordination{f.Interface.CoordinationV1(), f}
}

type frozenCoordination struct {
	coordinationclient.CoordinationV1Interface
	of FrozenLeases
}

// Leases returns the client of the Leases of a namespace.
func (f frozenCoordination) Leases(namespace string) coordinationclient.LeaseInterface {
	return frozenLeases{f.CoordinationV1Interface.Leases(namespace), f.of}
}

type frozenLeases struct {
	coordinationclient.LeaseInterface
	of FrozenLeases
}

// Update waits while the client is frozen.
func (f frozenLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if f.of.Frozen.Load() {
		<-f.of.Thaw
	}
	return f.LeaseInterface.Update(ctx, lease, options)
}
