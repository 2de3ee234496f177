package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
)

// Over two rotations, with two replicas that poll at different times, every
// replica always serves a certificate that the API server trusts.
func TestRotationNeverBreaksTheTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := Store{Secrets: fake.NewClientset().CoreV1(), Namespace: "kube-system", Name: "vpa-tls-certs",
			Hosts: hosts, Schedule: Schedule{Life: 3 * time.Hour, Overlap: 10 * time.Minute}}
		var mu sync.Mutex
		var known []byte // what the API server trusts
		var replicas []*Keeper
		ends := map[time.Time]bool{}
		for range 2 {
			k := &Keeper{Source: store.Load, Holder: &Holder{}, Expiry: func(end, _ time.Time) {
				mu.Lock()
				defer mu.Unlock()
				ends[end] = true
			},
				Publish: func(_ context.Context, cas []byte, _ time.Time) ([]byte, error) {
					mu.Lock()
					defer mu.Unlock()
					known = cas
					return cas, nil
				}}
			replicas = append(replicas, k)
			k.Run(ctx, true)
			go k.Run(ctx, false)
			time.Sleep(3 * time.Second)
		}
		for range 6 * 60 {
			time.Sleep(time.Minute)
			synctest.Wait()
			mu.Lock()
			for _, k := range replicas {
				roots := x509.NewCertPool()
				require.True(t, roots.AppendCertsFromPEM(known))
				_, err := k.Holder.Current().Certificate.Leaf.Verify(x509.VerifyOptions{DNSName: hosts[0], Roots: roots, CurrentTime: time.Now()})
				require.NoError(t, err, "at %s", time.Now())
			}
			mu.Unlock()
		}
		stop()
		synctest.Wait()
		require.GreaterOrEqual(t, len(ends), 3, "the certificate was rotated")
	})
}

func TestADeletedRegistrationIsSoonBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := Store{Secrets: fake.NewClientset().CoreV1(), Namespace: "n", Name: "s", Hosts: hosts, Schedule: DefaultSchedule()}
		var there atomic.Bool
		k := &Keeper{Source: store.Load, Holder: &Holder{}, Expiry: func(_, _ time.Time) {}, Publish: func(_ context.Context, cas []byte, _ time.Time) ([]byte, error) {
			there.Store(true)
			return cas, nil
		}}
		go k.Run(ctx, false)
		time.Sleep(5 * time.Minute)
		there.Store(false)
		time.Sleep(republish + keepInterval)
		require.True(t, there.Load())
		require.LessOrEqual(t, republish+keepInterval, 2*time.Minute, "the updater makes a pass every minute and goes on evicting")
		stop()
		synctest.Wait()
	})
}

func TestAFailureLeavesWhatIsThere(t *testing.T) {
	var fails error
	store := Store{Secrets: fake.NewClientset().CoreV1(), Namespace: "n", Name: "s", Hosts: hosts, Schedule: DefaultSchedule()}
	published := 0
	k := &Keeper{Holder: &Holder{}, Expiry: func(_, _ time.Time) {},
		Source: func(ctx context.Context, now time.Time, cas []byte) (*Serving, error) {
			if fails != nil {
				return nil, fails
			}
			return store.Load(ctx, now, cas)
		},
		Publish: func(_ context.Context, cas []byte, _ time.Time) ([]byte, error) { published++; return cas, nil },
	}
	now := time.Now()
	require.NoError(t, k.RunOnce(t.Context(), now))
	serving := k.Holder.Current()
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republish/3)))
	require.Equal(t, 1, published, "nothing changed")
	fails = errors.New("no API server")
	require.ErrorIs(t, k.RunOnce(t.Context(), now.Add(republish/2)), fails)
	require.True(t, serving.Certificate.Leaf.Equal(k.Holder.Current().Certificate.Leaf))
	fails = nil
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republish)))
	require.Equal(t, 2, published, "somebody may have damaged the registration")
	stale := true
	k.Stale = func() bool { return stale }
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republish+time.Second)))
	require.Equal(t, 3, published, "what it says is no longer so")
	stale = false
	require.NoError(t, k.RunOnce(t.Context(), now.Add(republish+2*time.Second)))
	require.Equal(t, 3, published)
}

// A certificate lives for a year.
func TestASecretIsNotReadAllTheTime(t *testing.T) {
	client := fake.NewClientset()
	store := Store{Secrets: client.CoreV1(), Namespace: "n", Name: "s", Hosts: hosts, Schedule: DefaultSchedule()}
	published := 0
	k := &Keeper{Source: store.Load, Interval: 30 * time.Second, Holder: &Holder{}, Expiry: func(_, _ time.Time) {},
		Publish: func(_ context.Context, cas []byte, _ time.Time) ([]byte, error) { published++; return cas, nil }}
	now := time.Now()
	require.NoError(t, k.RunOnce(t.Context(), now))
	client.ClearActions()
	for i := range 6 {
		require.NoError(t, k.RunOnce(t.Context(), now.Add(time.Duration(i+1)*10*time.Second)))
	}
	require.Len(t, client.Actions(), 2)
	require.Equal(t, 2, published, "the registration is written as before")
	late := k.Holder.Current().NotAfter.Add(-30 * time.Minute)
	k.loadedAt = late
	client.ClearActions()
	require.NoError(t, k.RunOnce(t.Context(), late))
	require.NotEmpty(t, client.Actions(), "it ends soon")
}

// Another replica found the certificate damaged and has published the CA of a new one.
func TestASecretIsReadWhenAnotherReplicaWantsOtherCAs(t *testing.T) {
	client := fake.NewClientset()
	store := Store{Secrets: client.CoreV1(), Namespace: "n", Name: "s", Hosts: hosts, Schedule: DefaultSchedule()}
	var others []byte
	k := &Keeper{Source: store.Load, Interval: time.Hour, Holder: &Holder{}, Expiry: func(_, _ time.Time) {},
		Publish: func(_ context.Context, cas []byte, _ time.Time) ([]byte, error) {
			return slices.Concat(cas, others), nil
		}}
	now := time.Now()
	reads := func(after time.Duration) int {
		client.ClearActions()
		require.NoError(t, k.RunOnce(t.Context(), now.Add(after)))
		return len(client.Actions())
	}
	require.NotZero(t, reads(0))
	require.Zero(t, reads(republish))
	others = must(t, now).ca
	require.Zero(t, reads(2*republish), "this run learns of it")
	require.Equal(t, 1, reads(2*republish+keepInterval))
	require.Zero(t, reads(3*republish))
}

// The updater must not evict while new pods do not come to the webhook.
func TestAWebhookThatIsNotRegisteredSaysSo(t *testing.T) {
	store := Store{Secrets: fake.NewClientset().CoreV1(), Namespace: "n", Name: "s", Hosts: hosts, Schedule: DefaultSchedule()}
	forbidden := errors.New("forbidden")
	k := &Keeper{Source: store.Load, Interval: time.Minute, Holder: &Holder{}, Expiry: func(_, _ time.Time) {}, Publish: func(_ context.Context, cas []byte, _ time.Time) ([]byte, error) {
		require.NotEmpty(t, cas)
		return cas, forbidden
	}}
	now := time.Now()
	k.Run(t.Context(), true)
	require.NotNil(t, k.Holder.Current(), "it can be served all the same")
	require.ErrorIs(t, k.Registered(), forbidden)
	forbidden = nil
	require.NoError(t, k.RunOnce(t.Context(), now.Add(time.Second)))
	require.NoError(t, k.Registered())
}
