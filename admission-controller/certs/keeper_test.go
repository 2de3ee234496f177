package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestKeeper_RotationKeepsTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		client := fake.NewClientset()
		a, s := apiServer{client: client}, store(client)
		s.Schedule = Schedule{Life: 3 * time.Hour, Overlap: 10 * time.Minute}
		var replicas []*Keeper
		ends := map[time.Time]bool{}
		for range 2 {
			k := a.replica(s)
			replicas = append(replicas, k)
			k.Run(ctx, true)
			go k.Run(ctx, false)
			time.Sleep(3 * time.Second)
		}
		for range 6 * 60 {
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, k := range replicas {
				ends[k.Holder.Current().NotAfter] = true
				roots := x509.NewCertPool()
				require.True(t, roots.AppendCertsFromPEM(a.bundle(t)))
				_, err := k.Holder.Current().Certificate.Leaf.Verify(x509.VerifyOptions{DNSName: hosts[0], Roots: roots, CurrentTime: time.Now()})
				require.NoError(t, err, "at %s", time.Now())
			}
		}
		stop()
		synctest.Wait()
		require.GreaterOrEqual(t, len(ends), 3, "the certificate was rotated")
	})
}

func TestKeeper_RestoresDeletedRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		client := fake.NewClientset()
		a := apiServer{client: client}
		go a.replica(store(client)).Run(ctx, false)
		time.Sleep(5 * time.Minute)
		require.NoError(t, client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, ConfigurationName, metav1.DeleteOptions{}))
		time.Sleep(republishInterval + keepInterval)
		require.NotEmpty(t, a.bundle(t))
		require.LessOrEqual(t, republishInterval+keepInterval, 2*time.Minute, "the updater makes a pass every minute and goes on evicting")
		stop()
		synctest.Wait()
	})
}

func TestKeeper_KeepsCertificateOnFailure(t *testing.T) {
	var fails error
	client := fake.NewClientset()
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return fails != nil, nil, fails })
	a := apiServer{client: client}
	k := a.replica(store(client))
	now := time.Now()
	require.NoError(t, k.RunOnce(t.Context(), now))
	serving := k.Holder.Current()
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republishInterval/3)))
	require.Equal(t, 1, a.registrations(), "nothing changed")
	fails = errors.New("no API server")
	require.ErrorIs(t, k.RunOnce(t.Context(), now.Add(republishInterval/2)), fails)
	require.True(t, serving.Certificate.Leaf.Equal(k.Holder.Current().Certificate.Leaf))
	fails = nil
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republishInterval)))
	require.Equal(t, 2, a.registrations(), "somebody may have damaged the registration")
	k.Registrar.Config.Fail, k.Registrar.Served = true, served
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republishInterval+time.Second)))
	require.Equal(t, 3, a.registrations(), "what it says is no longer so")
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republishInterval+2*time.Second)))
	require.Equal(t, 3, a.registrations())
}

// A certificate is valid for a year, so frequent reads are useless.
func TestKeeper_ReadsSecretRarely(t *testing.T) {
	client, a := fake.NewClientset(), apiServer{client: fake.NewClientset()}
	s := store(client)
	s.Schedule = DefaultSchedule()
	k := a.replica(s)
	k.Interval = 30 * time.Second
	now := time.Now()
	require.NoError(t, k.RunOnce(t.Context(), now))
	client.ClearActions()
	for i := range 6 {
		require.NoError(t, k.RunOnce(t.Context(), now.Add(time.Duration(i+1)*10*time.Second)))
	}
	require.Len(t, client.Actions(), 2)
	require.Equal(t, 2, a.registrations(), "the registration is written as before")
	late := k.Holder.Current().NotAfter.Add(-30 * time.Minute)
	k.loadedAt = late
	client.ClearActions()
	require.NoError(t, k.RunOnce(t.Context(), late))
	require.NotEmpty(t, client.Actions(), "it ends soon")
}

// The other replica found the certificate damaged and published the CA of a new one.
func TestKeeper_ReadsSecretWhenPublishedCAsDiffer(t *testing.T) {
	client, a := fake.NewClientset(), apiServer{client: fake.NewClientset()}
	k := a.replica(store(client))
	k.Interval = time.Hour
	now := time.Now()
	reads := func(after time.Duration) int {
		client.ClearActions()
		require.NoError(t, k.RunOnce(t.Context(), now.Add(after)))
		return len(client.Actions())
	}
	require.NotZero(t, reads(0))
	require.Zero(t, reads(republishInterval))
	_, err := a.replica(nil).Registrar.Apply(t.Context(), must(t, now).ca, now.Add(republishInterval))
	require.NoError(t, err)
	require.Zero(t, reads(2*republishInterval), "this run learns of it")
	require.Equal(t, 1, reads(2*republishInterval+keepInterval))
	require.Zero(t, reads(3*republishInterval))
}

// The updater must not evict pods while new pods do not reach the webhook.
func TestKeeper_ReportsFailedRegistration(t *testing.T) {
	client := fake.NewClientset()
	forbidden := errors.New("forbidden")
	client.PrependReactor("*", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden != nil, nil, forbidden
	})
	k := (&apiServer{client: client}).replica(store(client))
	k.Interval = time.Minute
	now := time.Now()
	k.Run(t.Context(), true)
	require.NotNil(t, k.Holder.Current(), "it can be served all the same")
	require.ErrorIs(t, k.Registered(), forbidden)
	forbidden = nil
	require.NoError(t, k.RunOnce(t.Context(), now.Add(time.Second)))
	require.NoError(t, k.Registered())
}
