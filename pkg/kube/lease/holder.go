package lease

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"loadline.dev/loadline/pkg/flags"
)

// Holder returns who holds the Lease of an election at now, for a process that takes no part in
// it; empty: nobody does. Who has not renewed it for its duration, by the clock of the holder,
// does not hold it any more.
func Holder(ctx context.Context, kube kubernetes.Interface, e flags.Election, now time.Time) (string, error) {
	lease, err := kube.CoordinationV1().Leases(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the Lease %s/%s: %w", e.Namespace, e.Name, err)
	case lease.Spec.HolderIdentity == nil || lease.Spec.RenewTime == nil:
		return "", nil
	}
	lasts := e.LeaseDuration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		lasts = time.Duration(*seconds) * time.Second
	}
	if !now.Before(lease.Spec.RenewTime.Add(lasts)) {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}
