package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

var (
	jan1     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts    = []string{"vpa-webhook.kube-system.svc"}
	schedule = Schedule{Life: 90 * time.Hour, Overlap: time.Hour}
)

func trusted(t *testing.T, s *Serving, host string, at time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(s.CAs))
	_, err := s.Certificate.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: at})
	require.NoError(t, err)
}

func equal(a, b *Serving) bool {
	return bytes.Equal(a.CAs, b.CAs) && a.Certificate.Leaf.Equal(b.Certificate.Leaf)
}

func store(client *fake.Clientset) *Store {
	return &Store{Secrets: client.CoreV1(), Namespace: "kube-system", Name: "vpa-tls-certs", Hosts: hosts, Schedule: schedule}
}

func TestIssue_TrustedForItsHostsOnly(t *testing.T) {
	fresh, err := issue([]string{"127.0.0.1", "localhost"}, jan1, time.Hour)
	require.NoError(t, err)
	s, err := newServing(fresh.cert, fresh.key, fresh.ca)
	require.NoError(t, err)
	trusted(t, s, "127.0.0.1", jan1)
	trusted(t, s, "localhost", jan1.Add(-4*time.Minute))
	_, err = check(fresh.cert, fresh.key, fresh.ca, []string{"10.0.0.1"}, jan1)
	require.ErrorContains(t, err, "not valid for 10.0.0.1")
	_, err = check(fresh.cert, fresh.key, fresh.ca, []string{"localhost"}, jan1.Add(time.Hour+time.Minute))
	require.ErrorContains(t, err, "expired")
	require.True(t, parse(fresh.ca)[0].IsCA)
	require.False(t, parse(fresh.cert)[0].IsCA)
}

// staged runs hooks between reads and writes of Secrets.
type staged struct {
	corev1client.SecretInterface
	get    func()
	update func() error
}

func (s staged) Secrets(string) corev1client.SecretInterface { return s }

func (s staged) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Secret, error) {
	secret, err := s.SecretInterface.Get(ctx, name, options)
	if s.get != nil {
		s.get()
	}
	return secret, err
}

func (s staged) Update(ctx context.Context, secret *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error) {
	if s.update != nil {
		if err := s.update(); err != nil {
			return nil, err
		}
	}
	return s.SecretInterface.Update(ctx, secret, options)
}

func TestStoreLoad_RacingReplicasShareCertificate(t *testing.T) {
	client := fake.NewClientset()
	var bothLooked sync.WaitGroup // both read before either writes
	bothLooked.Add(2)
	var got [2]*Serving
	var done sync.WaitGroup
	for i := range got {
		var once sync.Once
		replica := store(client)
		replica.Secrets = staged{SecretInterface: client.CoreV1().Secrets("kube-system"), get: func() {
			once.Do(func() {
				bothLooked.Done()
				bothLooked.Wait()
			})
		}}
		done.Go(func() {
			s, err := replica.Load(context.Background(), jan1, nil)
			require.NoError(t, err)
			got[i] = s
		})
	}
	done.Wait()
	require.True(t, equal(got[0], got[1]))
	trusted(t, got[0], hosts[0], jan1)
	secrets, err := client.CoreV1().Secrets("kube-system").List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, secrets.Items, 1)
}

func TestStoreLoad_AdoptsOtherCertificateOnConflict(t *testing.T) {
	client := fake.NewClientset()
	first, err := store(client).Load(context.Background(), jan1, nil)
	require.NoError(t, err)
	var other *Serving
	slow := store(client)
	slow.Secrets = staged{SecretInterface: client.CoreV1().Secrets("kube-system"), update: func() error {
		if other != nil {
			return nil
		}
		var err error
		other, err = store(client).Load(context.Background(), jan1.Add(70*time.Hour), first.CAs)
		require.NoError(t, err)
		return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "vpa-tls-certs", nil)
	}}
	mine, err := slow.Load(context.Background(), jan1.Add(70*time.Hour), first.CAs)
	require.NoError(t, err)
	require.True(t, equal(mine, other))
	require.Len(t, parse(mine.CAs), 2)
}

func TestStoreLoad_RotationOverlaps(t *testing.T) {
	load := func(s *Store, after time.Duration, published []byte) *Serving {
		serving, err := s.Load(context.Background(), jan1.Add(after), published)
		require.NoError(t, err)
		trusted(t, serving, hosts[0], jan1.Add(after))
		return serving
	}
	s := store(fake.NewClientset())
	first := load(s, 0, nil)
	require.True(t, equal(first, load(s, 59*time.Hour, first.CAs)), "nothing happens before two thirds of the life")

	announced := load(s, 61*time.Hour, first.CAs)
	require.Equal(t, first.Certificate.Leaf.Raw, announced.Certificate.Leaf.Raw, "the next certificate is announced, not used")
	require.Len(t, parse(announced.CAs), 2)
	require.True(t, equal(announced, load(s, 61*time.Hour+59*time.Minute, announced.CAs)), "not before the overlap has passed")
	require.True(t, equal(announced, load(s, 80*time.Hour, first.CAs)), "not before the new CA is published")

	used := load(s, 81*time.Hour, announced.CAs)
	require.NotEqual(t, first.Certificate.Leaf.Raw, used.Certificate.Leaf.Raw)
	require.Len(t, parse(used.CAs), 2, "replicas that still serve the old one stay trusted")
	load(s, 89*time.Hour, used.CAs)

	later := load(s, 125*time.Hour, used.CAs)
	require.Len(t, parse(later.CAs), 2, "the expired CA made room for the next")
}

func TestStoreLoad_ReplacesDamagedSecret(t *testing.T) {
	for _, tc := range []struct {
		name string
		data map[string][]byte
	}{
		{name: "empty"},
		{name: "garbage", data: map[string][]byte{certKey: []byte("x"), keyKey: []byte("y"), bundleKey: []byte("z")}},
		{name: "no key", data: map[string][]byte{certKey: []byte("x")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-tls-certs"}, Data: tc.data,
			})
			s, err := store(client).Load(context.Background(), jan1, nil)
			require.NoError(t, err)
			trusted(t, s, hosts[0], jan1)
		})
	}
}

func TestStoreLoad_AcceptsSecretOfUpstreamVPA(t *testing.T) {
	fresh, err := issue(hosts, jan1, 100000*24*time.Hour)
	require.NoError(t, err)
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-tls-certs"},
		Data: map[string][]byte{bundleKey: fresh.ca, certKey: fresh.cert, keyKey: fresh.key, "caKey.pem": []byte("secret")}})
	s, err := store(client).Load(context.Background(), jan1.Add(time.Hour), nil)
	require.NoError(t, err)
	require.Equal(t, fresh.ca, s.CAs)
	require.Len(t, client.Actions(), 1, "nothing is written")
}

func TestStoreLoad_NeverStoresCAKey(t *testing.T) {
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-tls-certs"}, Data: map[string][]byte{"caKey.pem": []byte("secret"), "mine": []byte("kept")}})
	_, err := store(client).Load(context.Background(), jan1, nil)
	require.NoError(t, err)
	secret, err := client.CoreV1().Secrets("kube-system").Get(context.Background(), "vpa-tls-certs", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, secret.Data, "caKey.pem")
	require.Contains(t, secret.Data, "mine")
	pair, err := tls.X509KeyPair(secret.Data[certKey], secret.Data[keyKey])
	require.NoError(t, err)
	require.False(t, pair.Leaf.IsCA)
}

func TestStoreLoad_ErrorsNameTheSecret(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "vpa-tls-certs", nil)
	})
	_, err := store(client).Load(context.Background(), jan1, nil)
	require.ErrorContains(t, err, "secret kube-system/vpa-tls-certs")
}

func writeFiles(t *testing.T, fresh issued) Files {
	dir := t.TempDir()
	f := Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	for name, content := range map[string][]byte{f.CA: fresh.ca, f.Cert: fresh.cert, f.Key: fresh.key} {
		require.NoError(t, os.WriteFile(name, content, 0o600))
	}
	return f
}

func TestFiles_Load(t *testing.T) {
	fresh, err := issue(hosts, jan1, time.Hour)
	require.NoError(t, err)
	f := writeFiles(t, fresh)
	require.True(t, f.Present())
	s, err := f.Load(t.Context(), jan1, nil)
	require.NoError(t, err)
	trusted(t, s, hosts[0], jan1)

	other, err := issue(hosts, jan1, time.Hour)
	require.NoError(t, err)
	for _, tc := range []struct {
		name   string
		change func(*testing.T, *Files)
		want   string
	}{
		{name: "missing key", change: func(t *testing.T, f *Files) { require.NoError(t, os.Remove(f.Key)) }, want: "key: no such file"},
		{name: "empty CA", change: func(t *testing.T, f *Files) { require.NoError(t, os.WriteFile(f.CA, nil, 0o600)) }, want: "is empty"},
		{name: "CA without PEM", change: func(t *testing.T, f *Files) { require.NoError(t, os.WriteFile(f.CA, []byte("x"), 0o600)) },
			want: "holds no certificate in PEM form"},
		{name: "key of another certificate",
			change: func(t *testing.T, f *Files) { require.NoError(t, os.WriteFile(f.Key, other.key, 0o600)) }, want: "does not match"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := writeFiles(t, fresh)
			tc.change(t, &f)
			_, err := f.Load(t.Context(), jan1, nil)
			require.ErrorContains(t, err, tc.want)
			require.True(t, f.Present())
		})
	}
	require.False(t, Files{Cert: "/nowhere/cert", Key: "/nowhere/key"}.Present())
}

func TestHolder_ForConnection(t *testing.T) {
	var h Holder
	_, err := h.ForConnection(nil)
	require.ErrorIs(t, err, errNoCertificate)
	fresh, err := issue(hosts, jan1, time.Hour)
	require.NoError(t, err)
	one, err := newServing(fresh.cert, fresh.key, fresh.ca)
	require.NoError(t, err)
	h.Set(one)
	cert, err := h.ForConnection(nil)
	require.NoError(t, err)
	require.Equal(t, one.Certificate.Certificate, cert.Certificate)
}
