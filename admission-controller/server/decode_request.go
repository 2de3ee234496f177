package server

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DecodeRequest decodes the request of an AdmissionReview without its objects, which are slices of
// the body. If an object is not valid JSON, its slice reaches to the end of the body: the UID and the
// resource precede the objects, so the review still gets an answer.
func DecodeRequest(body []byte) (*admissionv1.AdmissionRequest, error) {
	d := newDecoder(body)
	defer d.free()
	request := d.review()
	if err := d.end(); err != nil && !d.inObject {
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	if request == nil {
		return nil, errors.New("the AdmissionReview has no request")
	}
	return request, nil
}

// decodeHead decodes a request from the beginning of a body. It returns nil without a UID.
func decodeHead(beginning []byte) *admissionv1.AdmissionRequest {
	d := newDecoder(beginning)
	defer d.free()
	request := d.review()
	if request == nil || request.UID == "" {
		return nil
	}
	if d.inObject {
		request.Object.Raw, request.OldObject.Raw = nil, nil
	}
	return request
}

// namespaceOf returns the namespace of a review, or "" if none precedes the objects.
func namespaceOf(beginning []byte) string {
	d := newDecoder(beginning)
	defer d.free()
	for name := range d.members() {
		if string(name) != "request" {
			continue
		}
		for name := range d.members() {
			switch string(name) {
			case "namespace":
				return d.text()
			case "object", "oldObject":
				return ""
			}
		}
		return ""
	}
	return ""
}

func (d *decoder) review() (request *admissionv1.AdmissionRequest) {
	for name := range d.members() {
		if string(name) != "request" {
			continue
		}
		if request = nil; !d.null() {
			request = &admissionv1.AdmissionRequest{}
			d.request(request)
		}
	}
	return request
}

func (d *decoder) request(request *admissionv1.AdmissionRequest) {
	for name := range d.members() {
		switch string(name) {
		case "uid":
			request.UID = types.UID(d.text())
		case "resource":
			request.Resource = d.groupVersionResource()
		case "subResource":
			request.SubResource = d.text()
		case "name":
			request.Name = d.text()
		case "namespace":
			request.Namespace = d.text()
		case "operation":
			request.Operation = admissionv1.Operation(d.text())
		case "dryRun":
			request.DryRun = d.boolean()
		case "object":
			request.Object.Raw = d.object()
		case "oldObject":
			request.OldObject.Raw = d.object()
		}
	}
}

// object reads an object of a request. Its depth is checked when the object is decoded.
func (d *decoder) object() []byte {
	start := d.InputOffset()
	d.maxDepth = unlimited
	raw := d.raw()
	d.maxDepth = maxDepth
	if d.err != nil && !d.inObject {
		d.inObject = true
		return d.from(start, int64(len(d.in)))
	}
	return raw
}

func (d *decoder) groupVersionResource() (resource metav1.GroupVersionResource) {
	for name := range d.members() {
		switch string(name) {
		case "group":
			resource.Group = d.text()
		case "version":
			resource.Version = d.text()
		case "resource":
			resource.Resource = d.text()
		}
	}
	return resource
}
