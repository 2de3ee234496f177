package client

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// pages is a log that may be read while it is written.
type pages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pages) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *pages) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func TestAMissingPermissionIsSaidOnceAndFoundLater(t *testing.T) {
	kube := fake.NewClientset(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "", nil)
	var mu sync.Mutex
	answers := []error{forbidden, forbidden, errors.New("etcd is away"), forbidden}
	kube.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) == 0 {
			return false, nil, nil
		}
		err := answers[0]
		answers = answers[1:]
		return true, nil, err
	})
	quotas := Factory(kube, "", time.Hour, "").Core().V1().ResourceQuotas()
	require.NoError(t, Optional(quotas.Informer(), time.Millisecond, "Quotas are not asked"))
	log := &pages{}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))))
	ended := make(chan struct{})
	go func() { defer close(ended); quotas.Informer().RunWithContext(ctx) }()
	require.Eventually(t, quotas.Informer().HasSynced, 60*time.Second, time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "Quotas are not asked"), log.String())
	require.Equal(t, 1, strings.Count(log.String(), "is forbidden"), "nor does the client library say it")
	require.Contains(t, log.String(), "etcd is away", "other errors are not hidden")
	stop()
	<-ended
}

// A program must not wait for the next attempt when it ends.
func TestAnInformerThatMayNotReadEndsAtOnce(t *testing.T) {
	kube := fake.NewClientset()
	asked := make(chan struct{}, 10)
	kube.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "", nil)
	})
	f := Factory(kube, "", time.Hour, "")
	require.NoError(t, Optional(f.Core().V1().ResourceQuotas().Informer(), 0, "Quotas are not asked"))
	ctx, stop := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	<-asked
	stop()
	f.Shutdown()
}
