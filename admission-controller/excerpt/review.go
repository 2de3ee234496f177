package excerpt

import (
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Request reads the request of an AdmissionReview: who and what it is about, the
// operation, and whether it is a dry run. Its objects are parts of the body that
// are not looked at yet. It fails when the body is no review or has no request.
func Request(body []byte) (*admissionv1.AdmissionRequest, error) {
	var request admissionv1.AdmissionRequest
	present := false
	r := Read(body)
	for name := range r.Members() {
		if string(name) == "request" {
			request = admissionv1.AdmissionRequest{}
			present = r.request(&request)
		}
	}
	if r.Done() && present {
		return &request, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if review.Request == nil {
		return nil, errors.New("the AdmissionReview has no request")
	}
	return review.Request, nil
}

// request takes a request. It is false for null.
func (r *Reader) request(request *admissionv1.AdmissionRequest) bool {
	if r.null() {
		return false
	}
	for name := range r.Members() {
		switch string(name) {
		case "uid":
			request.UID = types.UID(r.Text())
		case "resource":
			request.Resource = r.resource()
		case "subResource":
			request.SubResource = r.Text()
		case "name":
			request.Name = r.Text()
		case "namespace":
			request.Namespace = r.Text()
		case "operation":
			request.Operation = admissionv1.Operation(r.Text())
		case "dryRun":
			request.DryRun = r.Truth()
		case "object":
			request.Object.Raw = r.Raw()
		case "oldObject":
			request.OldObject.Raw = r.Raw()
		}
	}
	return true
}

func (r *Reader) resource() (resource metav1.GroupVersionResource) {
	for name := range r.Members() {
		switch string(name) {
		case "group":
			resource.Group = r.Text()
		case "version":
			resource.Version = r.Text()
		case "resource":
			resource.Resource = r.Text()
		}
	}
	return resource
}
