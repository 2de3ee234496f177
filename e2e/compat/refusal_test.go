package compat

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/vpa"

	"loadline.dev/loadline/admission-controller/validate"
)

// The messages differ on purpose: Loadline names the field and a valid value.
func TestCheck_RejectsObjectsUpstreamCannotDecode(t *testing.T) {
	for _, object := range []string{
		``, `{`, `7`, `[]`, `null7`, `{"spec":{"targetRef":7}}`, `{"spec":{"updatePolicy":{"minReplicas":"two"}}}`, `{"metadata":{"name":1}}`,
		`{"spec":{"resourcePolicy":{"containerPolicies":{}}}}`, `{"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":{"cpu":"much"}}]}}}`,
		`{"spec":{"resourcePolicy":{"containerPolicies":[{"minAllowed":7}]}}}`, `{"spec":{"updatePolicy":{"updateMode":true}}}`,
	} {
		request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "v"}
		request.Object.Raw = []byte(object)
		_, _, want := vpa.NewResourceHandler(vpa.NewDefaultPreProcessor()).GetPatches(t.Context(), request)
		require.Len(t, want, 1, object)
		got := validate.Config{}.Check([]byte(object), nil)
		require.Len(t, got.Errors, 1, object)
	}
}
