package server

import (
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
	request, r := first(body)
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if request == nil {
		return nil, errors.New("the AdmissionReview has no request")
	}
	return request, nil
}

// Head reads what the beginning of a review says of its request: the API server
// writes the names and the operation before the objects. It is nil if that is
// not so.
func Head(beginning []byte) *admissionv1.AdmissionRequest {
	request, _ := first(beginning)
	if request == nil || request.UID == "" {
		return nil
	}
	return request
}

// namespaceOf returns the namespace of a review from the beginning of its body. It reads no further than the
// namespace, which the API server writes before the objects. It is empty if there is none before them.
func namespaceOf(beginning []byte) (namespace string) {
	r := Read(beginning)
	for name := range r.Members() {
		if string(name) != "request" {
			continue
		}
		for name := range r.Members() {
			switch string(name) {
			case "namespace":
				return r.Text()
			case "object", "oldObject":
				return ""
			}
		}
		break
	}
	return ""
}

// first reads the request of a review as far as it can. The request is nil if
// there is none.
func first(body []byte) (request *admissionv1.AdmissionRequest, r *Reader) {
	r = Read(body)
	for name := range r.Members() {
		if string(name) != "request" {
			continue
		}
		if request = nil; !r.null() {
			request = &admissionv1.AdmissionRequest{}
			r.request(request)
		}
	}
	return request, r
}

func (r *Reader) request(request *admissionv1.AdmissionRequest) {
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
			request.Object.Raw = r.object()
		case "oldObject":
			request.OldObject.Raw = r.object()
		}
	}
}

// object takes an object of a request. Whoever reads it bounds its levels: the answer
// is about the object then, and has its UID.
func (r *Reader) object() []byte {
	most := r.most
	defer func() { r.most = most }()
	r.most = anyLevels
	return r.Raw()
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
