package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/process"
)

// leanRequest returns a request with only the fields that the webhook reads.
func leanRequest(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	kept := &admissionv1.AdmissionRequest{UID: r.UID, Resource: r.Resource, SubResource: r.SubResource, Name: r.Name, Namespace: r.Namespace, Operation: r.Operation, DryRun: r.DryRun}
	kept.Object.Raw, kept.OldObject.Raw = r.Object.Raw, r.OldObject.Raw
	return kept
}

func TestDecodeRequest_MatchesEncodingJSON(t *testing.T) {
	written, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "ns", Name: "n", Operation: admissionv1.Update, SubResource: "s",
			Resource: metav1.GroupVersionResource{Group: "g", Version: "v1", Resource: "pods"}, DryRun: new(true)},
	})
	require.NoError(t, err)
	request, err := DecodeRequest(written)
	require.NoError(t, err)
	require.Equal(t, &admissionv1.AdmissionRequest{UID: "u", Namespace: "ns", Name: "n", Operation: admissionv1.Update, SubResource: "s",
		Resource: metav1.GroupVersionResource{Group: "g", Version: "v1", Resource: "pods"}, DryRun: new(true)}, request)

	request, err = DecodeRequest([]byte(` {"request":{"uid":"u","object": {"a":"}"} ,"oldObject":null}} `))
	require.NoError(t, err)
	require.Equal(t, types.UID("u"), request.UID)
	require.Equal(t, `{"a":"}"}`, string(request.Object.Raw))
	require.Nil(t, request.OldObject.Raw)
}

func TestDecodeRequest_RejectsInvalidReviews(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{name: "empty", want: "not an AdmissionReview: byte 0: unexpected end of JSON"},
		{name: "number", in: `7`, want: `not an AdmissionReview: byte 0 must be '{', not "7"`},
		{name: "no request", in: `{}`, want: "has no request"},
		{name: "request is null", in: `{"request":null}`, want: "has no request"},
		{name: "null", in: `null`, want: "has no request"},
		{name: "UID is a number", in: `{"request":{"uid":7}}`, want: "not an AdmissionReview: byte 18 must be a string"},
		{name: "text after the review", in: `{"request":{}} x`, want: "byte 15: invalid character"},
		{name: "request is a number", in: `{"request":7}`, want: `must be '{', not "7}"`},
		{name: "dryRun is a number", in: `{"request":{"dryRun":1}}`, want: "must be true or false"},
		{name: "UID too long", in: `{"request":{"uid":"` + strings.Repeat("u", maxText+1) + `"}}`, want: "more than is looked at"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodeRequest([]byte(tc.in))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// The rest of a large review may have to wait for memory, and a timeout still needs the UID.
func TestDecodeHead_ReadsFieldsBeforeObject(t *testing.T) {
	whole := `{"kind":"AdmissionReview","request":{"uid":"u","resource":{"group":"","version":"v1","resource":"pods"},"namespace":"ns","operation":"CREATE","object":{"metadata":{"name":"x"}}}}`
	require.Nil(t, decodeHead(nil))
	require.Nil(t, decodeHead([]byte(whole[:40])))
	head := decodeHead([]byte(whole[:len(whole)-10]))
	require.Equal(t, "u", string(head.UID))
	require.Equal(t, "pods", head.Resource.Resource)
	require.Equal(t, "ns", head.Namespace)
	require.Nil(t, head.Object.Raw)
}

// FuzzRequest compares DecodeRequest with encoding/json, as FuzzDecodePod does.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"kind":"AdmissionReview","request":{"uid":"u","resource":{"group":"","version":"v1","resource":"pods"},"namespace":"ns","operation":"CREATE","object":{"spec":{}},"oldObject":null,"dryRun":false}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, ours := DecodeRequest(raw)
		var review admissionv1.AdmissionReview
		if errors.Is(ours, ErrTooComplex) || json.Unmarshal(raw, &review) != nil || review.Request == nil {
			return
		}
		if ours != nil {
			t.Fatalf("%s: %v", raw, ours)
		}
		written, err := json.Marshal(&review)
		if err != nil {
			return
		}
		var long admissionv1.AdmissionReview
		if err := json.Unmarshal(written, &long); err != nil {
			t.Fatal(err)
		}
		short, err := DecodeRequest(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		require.Equal(t, leanRequest(long.Request), short, "%s", written)
	})
}

// Answer.After may still read the body, so its buffer must not be reused for another review.
func TestServer_KeepsBodyUntilAfterReturns(t *testing.T) {
	handler := Handler{Resource: metav1.GroupResource{Resource: "pods"}, Answer: func(_ context.Context, request *admissionv1.AdmissionRequest) Answer {
		return Answer{After: func() {
			time.Sleep(time.Millisecond)
			if strings.ReplaceAll(string(request.Object.Raw), " ", "") != fmt.Sprintf(`{"a":%q}`, request.UID) {
				panic("the body is that of another review") // counted as a problem
			}
		}}
	}}
	r := &failing{}
	h := New(Config{Environment: process.OS{}, Handlers: []Handler{handler}, Recorder: r}).Handler(klog.Background())
	var senders sync.WaitGroup
	for sender := range 8 {
		senders.Go(func() {
			for i := range 20 {
				uid := fmt.Sprintf("%d-%d", sender, i)
				filler := strings.Repeat(" ", i*maxSmallBody/15) // some bodies are large
				body := fmt.Sprintf(`{"request":{"uid":%q,"resource":{"resource":"pods"},"object":{"a":%s%q}}}`, uid, filler, uid)
				request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
				request.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request)
				assert.Contains(t, w.Body.String(), fmt.Sprintf(`"uid":%q`, uid))
			}
		})
	}
	senders.Wait()
	require.Zero(t, r.problems.Load())
}

type failing struct{ problems atomic.Int64 }

func (*failing) Request(string, string, time.Duration) {}
func (*failing) Step(string, time.Duration)            {}
func (f *failing) Problem(Cause)                       { f.problems.Add(1) }
