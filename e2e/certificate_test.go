package e2e

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/e2e/harness"
)

// The API server trusts the replacement, and no webhook call of the tests that run in parallel
// fails meanwhile.
func TestCertificate_ReplacesDamagedOne(t *testing.T) {
	parallelTest(t)
	secrets := cluster.Kube.CoreV1().Secrets(harness.SystemNamespace)
	secret, err := secrets.Get(t.Context(), "vpa-tls-certs", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, secret.Data, "caKey.pem", "the key of the CA must not be kept")
	const entry = "serverCert.pem"
	require.NotEmpty(t, secret.Data[entry])
	secret.Data[entry] = []byte("damaged")
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, "a new certificate in the secret", func() error {
		secret, err := secrets.Get(t.Context(), "vpa-tls-certs", metav1.GetOptions{})
		if err == nil && string(secret.Data[entry]) == "damaged" {
			err = errors.New("it is still the damaged one")
		}
		return err
	})
	// Only the webhook rejects this VPA, so a rejection proves that the API server reached it.
	zero := int32(0)
	eventually(t, "the webhook answers under its new certificate", func() error {
		err := cluster.CreateVPA(t.Context(), harness.Workload{Namespace: namespace(t, "certificate"), Name: "refused"}, vpav1.UpdateModeOff,
			func(vpa *vpav1.VerticalPodAutoscaler) {
				vpa.GenerateName, vpa.Name = "refused-", ""
				vpa.Spec.UpdatePolicy.MinReplicas = &zero
			})
		if err == nil {
			return errors.New("an invalid VPA was accepted")
		}
		require.ErrorContains(t, err, "minReplicas")
		return nil
	})
}
