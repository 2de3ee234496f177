package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// apiServer applies changes of a registration after a delay.
type apiServer struct {
	client *fake.Clientset
	lag    time.Duration
	seen   atomic.Pointer[[]byte] // the bundle as of lag ago
}

func (a *apiServer) replica(source Source) *Keeper {
	r := Registrar{Client: a.client.AdmissionregistrationV1(), Config: Config{Service: "vpa-webhook", Namespace: "kube-system", TimeoutSeconds: 5}, Served: namespaces{}}
	return &Keeper{Source: source, Registrar: &r, Holder: &Holder{}, Recorder: &ends{}}
}

// ends records the remaining lifetimes of served certificates.
type ends []time.Duration

func (e *ends) Certificate(end, now time.Time) { *e = append(*e, end.Sub(now)) }

func (a *apiServer) registrations() (times int) {
	for _, action := range a.client.Actions() {
		if action.Matches("get", "mutatingwebhookconfigurations") {
			times++
		}
	}
	return times
}

func (a *apiServer) bundle(t *testing.T) []byte {
	got, err := a.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), ConfigurationName, metav1.GetOptions{})
	require.NoError(t, err)
	return got.Webhooks[0].ClientConfig.CABundle
}

func (a *apiServer) watch(ctx context.Context, t *testing.T) {
	for {
		now := a.bundle(t)
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.lag):
			a.seen.Store(&now)
		}
	}
}

func (a *apiServer) check(t *testing.T, replicas []*Keeper) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(*a.seen.Load()))
	for i, k := range replicas {
		_, err := k.Holder.Current().Certificate.Leaf.Verify(x509.VerifyOptions{DNSName: hosts[0], Roots: roots, CurrentTime: time.Now()})
		require.NoError(t, err, "replica %d at %s", i, time.Now())
	}
}

// handover runs two replicas, applies a change after a minute and checks trust every second for
// four minutes. In the end, both replicas must serve the same new certificate.
func handover(t *testing.T, sources [2]Source, change func(second int)) {
	ctx, stop := context.WithCancel(t.Context())
	a := &apiServer{client: fake.NewClientset(), lag: 5 * time.Second}
	var replicas []*Keeper
	var before []*x509.Certificate
	for _, source := range sources {
		k := a.replica(source)
		k.Run(ctx, true)
		replicas, before = append(replicas, k), append(before, k.Holder.Current().Certificate.Leaf)
		go k.Run(ctx, false)
		time.Sleep(3 * time.Second)
	}
	go a.watch(ctx, t)
	time.Sleep(time.Minute)
	for second := range 240 {
		change(second)
		time.Sleep(time.Second)
		synctest.Wait()
		a.check(t, replicas)
	}
	stop()
	synctest.Wait()
	for i, k := range replicas {
		require.False(t, before[i].Equal(k.Holder.Current().Certificate.Leaf), "replica %d still serves the former certificate", i)
	}
	require.True(t, replicas[0].Holder.Current().Certificate.Leaf.Equal(replicas[1].Holder.Current().Certificate.Leaf))
}

func write(t *testing.T, f Files, fresh issued) {
	for name, content := range map[string][]byte{f.CA: fresh.ca, f.Cert: fresh.cert, f.Key: fresh.key} {
		require.NoError(t, os.WriteFile(name, content, 0o600))
	}
}

// The mounted files of a new CA reach the replicas 90 seconds apart, as the kubelet syncs volumes
// at different times.
func TestHandover_NewCAFilesKeepTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, err := issue(hosts, time.Now(), 100*time.Hour)
		require.NoError(t, err)
		second, err := issue(hosts, time.Now(), 100*time.Hour)
		require.NoError(t, err)
		mounts := [2]Files{writeFiles(t, first), writeFiles(t, first)}
		handover(t, [2]Source{mounts[0], mounts[1]}, func(at int) {
			switch at {
			case 5:
				write(t, mounts[0], second)
			case 95:
				write(t, mounts[1], second)
			}
		})
	})
}

// After the Secret is deleted, the replicas issue a new CA but serve the old certificate until the
// API server trusts the new one.
func TestHandover_DeletedSecretKeepsTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		s := store(client)
		handover(t, [2]Source{s, s}, func(at int) {
			if at == 5 {
				require.NoError(t, client.CoreV1().Secrets("kube-system").Delete(t.Context(), "vpa-tls-certs", metav1.DeleteOptions{}))
			}
		})
	})
}

// The certificate expires within four minutes.
func TestHandover_ReplacesCertificateBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		old, err := issue(hosts, time.Now().Add(-10*time.Minute), 14*time.Minute)
		require.NoError(t, err)
		_, err = client.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-tls-certs"},
			Data: map[string][]byte{bundleKey: old.ca, certKey: old.cert, keyKey: old.key}}, metav1.CreateOptions{})
		require.NoError(t, err)
		s := store(client)
		handover(t, [2]Source{s, s}, func(int) {})
	})
}

func TestRotate_PromotesNextCertificateIfCurrentIsDamaged(t *testing.T) {
	now, next := jan1.Add(70*time.Hour), must(t, jan1.Add(69*time.Hour))
	data := map[string][]byte{bundleKey: next.ca, certKey: []byte("damaged"), nextCertKey: next.cert, nextKeyKey: next.key}
	got, changed, err := rotate(data, hosts, schedule, now, nil)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, string(next.cert), string(got[certKey]))
	require.NotContains(t, got, nextCertKey)
}

func must(t *testing.T, at time.Time) issued {
	fresh, err := issue(hosts, at, schedule.Life)
	require.NoError(t, err)
	return fresh
}

func TestKeeper_KeepsGoodCertificateOverUntrustedOne(t *testing.T) {
	good, stray := must(t, jan1), must(t, jan1)
	f := writeFiles(t, good)
	a := &apiServer{client: fake.NewClientset()}
	k := a.replica(f)
	require.NoError(t, k.RunOnce(t.Context(), jan1))
	write(t, f, issued{ca: good.ca, cert: stray.cert, key: stray.key})
	for minutes := range 10 {
		require.ErrorContains(t, k.RunOnce(t.Context(), jan1.Add(time.Duration(minutes)*time.Minute)), "not signed by the CAs provided with it")
	}
	require.Equal(t, parse(good.cert)[0].Raw, k.Holder.Current().Certificate.Leaf.Raw)
	end := jan1.Add(schedule.Life)
	require.NoError(t, k.RunOnce(t.Context(), end.Add(-time.Second)), "nothing is lost with a good one that ends")
	require.Equal(t, parse(stray.cert)[0].Raw, k.Holder.Current().Certificate.Leaf.Raw)
}

func TestStoreLoad_NeverWritesCertManagerSecret(t *testing.T) {
	fresh := must(t, jan1)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-tls-certs"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"ca.crt": fresh.ca, "tls.crt": fresh.cert, "tls.key": fresh.key}}
	client := fake.NewClientset(secret)
	late := jan1.Add(schedule.Life - time.Minute)
	s, err := store(client).Load(t.Context(), late, nil)
	require.NoError(t, err)
	trusted(t, s, hosts[0], late)
	require.Len(t, client.Actions(), 1)

	secret.Data["ca.crt"] = nil
	_, err = store(fake.NewClientset(secret)).Load(t.Context(), jan1, nil)
	require.ErrorContains(t, err, "secret kube-system/vpa-tls-certs: it has the key tls.crt but no certificate of the CA under ca.crt")
}

// The first lines are those of the upstream VPA, which log tooling may match.
func TestKeeper_LogsNewCertificatesAndDaysLeft(t *testing.T) {
	var text bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text), textlogger.Verbosity(1))))
	f := writeFiles(t, must(t, jan1))
	a := &apiServer{client: fake.NewClientset()}
	k := a.replica(f)
	run := func(after time.Duration) string {
		text.Reset()
		require.NoError(t, k.RunOnce(ctx, jan1.Add(after)))
		return text.String()
	}
	require.Contains(t, run(0), `"The serving certificate expires soon: if another program issues it, check that it gets renewed" daysLeft=3`)
	write(t, f, must(t, jan1.Add(time.Minute)))
	said := run(time.Minute)
	require.Contains(t, said, `"New client CA found, reloading and patching webhook"`)
	require.Contains(t, said, `"Successfully patched webhook with new client CA"`)
	require.NotContains(t, said, "New certificate found, reloading", "the API server has to hear of its CA first")
	require.Contains(t, run(time.Minute+announceDelay), `"New certificate found, reloading"`)
	require.Empty(t, run(time.Hour), "once a day is enough")
	require.Contains(t, run(25*time.Hour), "daysLeft=2")

	life, err := issue(hosts, jan1, 100*24*time.Hour)
	require.NoError(t, err)
	k = a.replica(writeFiles(t, life))
	require.Contains(t, run(0), `"The serving certificate is valid" daysLeft=100`)
}

func TestKeeper_RecordsExpiryInEachRun(t *testing.T) {
	fresh := must(t, jan1)
	var told ends
	k := &Keeper{Source: writeFiles(t, fresh), Holder: &Holder{}, Recorder: &told}
	require.NoError(t, k.RunOnce(t.Context(), jan1))
	require.NoError(t, k.RunOnce(t.Context(), jan1.Add(80*time.Hour)))
	err := k.RunOnce(t.Context(), jan1.Add(91*time.Hour))
	require.ErrorContains(t, err, "expired on 2026-01-04T18:00:00Z: renew it")
	require.Equal(t, ends{90 * time.Hour, 10 * time.Hour, -time.Hour}, told, "in each run, not only when it changes")
	k.Source = Files{}
	require.ErrorContains(t, k.RunOnce(t.Context(), jan1.Add(92*time.Hour)), "expired")
	require.Len(t, told, 4, "also when there is nothing new to read")
}
