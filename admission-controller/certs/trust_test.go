package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func authority(t *testing.T, serial int64) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: jan1, NotAfter: jan1.AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func serials(bundle []byte) (all []int64) {
	for _, c := range parse(bundle) {
		all = append(all, c.SerialNumber.Int64())
	}
	return all
}

// Two replicas with different files register alternately. CAs in use stay in the bundle, and an
// unused CA is removed in the end.
func TestRegistrar_KeepsCAsOfOtherReplicas(t *testing.T) {
	client := fake.NewClientset()
	r := Registrar{Client: client.AdmissionregistrationV1(), Config: config(), Served: served}
	older, newer := authority(t, 1), authority(t, 2)
	apply := func(cas []byte, at time.Duration) []int64 {
		trusted, err := r.Apply(t.Context(), cas, jan1.Add(at))
		require.NoError(t, err)
		hook := registered(t, client).Webhooks[0]
		require.Equal(t, string(trusted), string(hook.ClientConfig.CABundle))
		return serials(trusted)
	}
	require.Equal(t, []int64{1}, apply(older, 0))
	require.Equal(t, []int64{2, 1}, apply(newer, time.Hour))
	require.Equal(t, []int64{1, 2}, apply(older, time.Hour+time.Minute), "the slower replica must not undo it")
	for at := time.Hour; at < 10*time.Hour; at += 10 * time.Minute {
		require.ElementsMatch(t, []int64{1, 2}, apply(older, at))
		require.ElementsMatch(t, []int64{1, 2}, apply(newer, at))
	}
	require.Equal(t, []int64{2, 1}, apply(newer, 10*time.Hour))
	require.Equal(t, []int64{2}, apply(newer, 12*time.Hour+time.Minute), "nobody wants the old one any more")
}

func TestTrust_KeepsGivenCAsVerbatim(t *testing.T) {
	ca := append([]byte("Subject: a comment\n"), authority(t, 1)...)
	got := trust{}.with(ca, jan1)
	require.Equal(t, string(ca), string(got.bundle))
	got = got.with(bytes.TrimSpace(authority(t, 2)), jan1)
	require.Equal(t, []int64{2, 1}, serials(got.bundle), "bundles without a newline at the end can be continued")
	require.Equal(t, []int64{3}, serials(got.with(authority(t, 3), jan1.AddDate(2, 0, 0)).bundle), "expired ones go")
}

func TestTrust_RenewsTimesOnlyWhenNeeded(t *testing.T) {
	first := trust{}.with(authority(t, 1), jan1)
	again := first.with(first.bundle, jan1.Add(trustGrace/2-time.Second))
	require.Equal(t, first, again)
	require.NotEqual(t, first, first.with(first.bundle, jan1.Add(trustGrace/2+time.Second)))
	note, err := first.encode()
	require.NoError(t, err)
	require.Equal(t, first.until, parseTrust(note))
	require.Nil(t, parseTrust("7"), "damaged by somebody")
}

func TestRegistrar_KeepsUnknownCAForGracePeriod(t *testing.T) {
	client := fake.NewClientset(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
		Webhooks:   []admissionv1.MutatingWebhook{{Name: WebhookName, ClientConfig: admissionv1.WebhookClientConfig{CABundle: authority(t, 1)}}},
	})
	r := Registrar{Client: client.AdmissionregistrationV1(), Config: config(), Served: served}
	mine := authority(t, 2)
	for _, after := range []time.Duration{0, time.Minute} {
		trusted, err := r.Apply(t.Context(), mine, jan1.Add(after))
		require.NoError(t, err)
		require.Equal(t, []int64{2, 1}, serials(trusted), "the one of the reference, whose replicas may still run")
	}
	trusted, err := r.Apply(t.Context(), mine, jan1.Add(trustGrace+time.Minute))
	require.NoError(t, err)
	require.Equal(t, []int64{2}, serials(trusted))
}

func TestRegistrarApply_RetriesOnConflict(t *testing.T) {
	client := fake.NewClientset(&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName, ResourceVersion: "7"}})
	refused := 0
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		require.Contains(t, string(action.(clienttesting.PatchAction).GetPatch()), `"resourceVersion":"7"`)
		if refused++; refused < 3 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "x"}, ConfigurationName, nil)
		}
		return true, &admissionv1.MutatingWebhookConfiguration{}, nil
	})
	r := Registrar{Client: client.AdmissionregistrationV1(), Config: config(), Served: served}
	_, err := r.Apply(t.Context(), authority(t, 1), jan1)
	require.NoError(t, err)
	require.Equal(t, 3, refused)
	refused = -100
	_, err = r.Apply(t.Context(), authority(t, 1), jan1)
	require.ErrorContains(t, err, "MutatingWebhookConfiguration vpa-webhook-config")
}

func TestRegistrar_FailurePolicyFailExemptsKubeSystem(t *testing.T) {
	c := config()
	c.Fail, c.Namespace = true, "vpa-system"
	for _, hook := range written(t, fake.NewClientset(), c, "CA").Webhooks {
		selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
		require.NoError(t, err)
		for name, want := range map[string]admissionv1.FailurePolicyType{"vpa-system": admissionv1.Ignore, "kube-system": admissionv1.Ignore, "shop": admissionv1.Fail} {
			if selector.Matches(labels.Set{"kubernetes.io/metadata.name": name}) {
				require.Equal(t, want, *hook.FailurePolicy, name)
			}
		}
	}
}
