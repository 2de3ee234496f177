package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/excerpt"
	"loadline.dev/loadline/pkg/patch"
)

// Answer is what a Handler decides about one object. The zero value allows it
// unchanged.
type Answer struct {
	Refusal  *metav1.Status // nil: allowed
	Patch    []patch.Operation
	Warnings []string
	// Err is why the object is allowed without having been looked at, and Cause
	// the label it is counted under.
	Err   error
	Cause Cause
	// After runs once the answer has left, so that what only tells of it, such as
	// logging, does not hold the object up; nil: nothing. It does not run when the
	// answer could not leave. The next request of the same connection waits for it.
	After func()
}

// Handler decides about one object.
type Handler struct {
	Resource metav1.GroupResource
	Label    string // value of the metric label "resource"
	Answer   func(ctx context.Context, request *admissionv1.AdmissionRequest) Answer
}

// Cause is why a request could not be handled. The set is closed.
type Cause string

// The causes.
const (
	CauseContentType Cause = "content_type" // the body is not JSON
	CauseTooLarge    Cause = "too_large"    // the body exceeds MaxBody
	CauseBody        Cause = "body"         // the body is no AdmissionReview
	CauseResource    Cause = "resource"     // no handler for the resource or version
	CauseObject      Cause = "object"       // the object cannot be read
	CauseTooComplex  Cause = "too_complex"  // the object has more parts than are looked at
	CauseBusy        Cause = "busy"         // too many or too large reviews at the same time
	CauseOwner       Cause = "owner"        // the owners of a pod cannot be read
	CauseBoost       Cause = "boost"        // a startup boost cannot be computed
	CauseLimitRange  Cause = "limit_range"  // LimitRanges cannot be listed
	CausePanic       Cause = "panic"        // a defect of ours
	CauseResponse    Cause = "response"     // the answer cannot be written
	CauseClient      Cause = "client"       // the client is not the API server
)

// Values of the metric labels.
const (
	statusError   = "error"
	statusSkipped = "skipped"
	statusApplied = "applied"

	labelUnknown = "unknown"

	StepRead  = "read_request"
	StepAdmit = "admit"
	StepBuild = "build_response"
	StepWrite = "write_response"
	StepTotal = "total"
)

// Recorder counts what happens.
type Recorder interface {
	Request(status, resource string, took time.Duration)
	Step(step string, took time.Duration)
	Problem(cause Cause)
}

// Bounds of what reviews take of the memory. Whoever may create pods can send
// large ones, and many at a time.
const (
	// MaxBody is the largest request body in bytes.
	MaxBody = 5 << 20
	// usualBody is the size of nearly all bodies in bytes.
	usualBody = 64 << 10
	// largeBodies are the bytes of all bodies above usualBody that are in memory at
	// the same time.
	largeBodies = 40 << 20
	// answeredAtOnce is how many reviews are decoded and answered at the same time.
	answeredAtOnce = 100
)

// reviewer is the handler of all paths.
type reviewer struct {
	handlers []Handler
	recorder Recorder
	callers  Callers
	log      klog.Logger
	reads    func(body []byte) (*admissionv1.AdmissionRequest, error)
	memory   *budget // of bodies above usualBody, in bytes
	answers  *budget // that are worked on
}

// exchange is one request on its way.
type exchange struct {
	*reviewer
	started, step time.Time
	status, label string
	about         *admissionv1.AdmissionRequest // nil until it was read
	after         func()                        // nil: nothing
	held          int                           // bytes of reviewer.memory
}

// took records the step that just ended.
func (x *exchange) took(step string) {
	now := time.Now()
	x.recorder.Step(step, now.Sub(x.step))
	x.step = now
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	x := &exchange{reviewer: r, started: now, step: now, status: statusError, label: labelUnknown}
	defer func() {
		x.memory.give(x.held)
		total := time.Since(x.started)
		r.recorder.Step(StepTotal, total)
		r.recorder.Request(x.status, x.label, total)
		x.tell()
	}()
	ctx, cancel := context.WithDeadline(request.Context(), now.Add(timeout(request)))
	defer cancel()
	body, code := x.read(ctx, w, request)
	x.took(StepRead)
	if code != 0 {
		w.WriteHeader(code)
		return
	}
	response := x.answer(ctx, body)
	x.took(StepAdmit)
	answer, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
	x.took(StepBuild)
	if err == nil {
		err = deliver(w, answer)
	}
	x.took(StepWrite)
	if err != nil { // whatever was decided, nobody heard of it
		x.status, x.after = statusError, nil
		x.problem(CauseResponse, err)
	}
}

// tell runs what only tells of an answer. It must not panic: that would cut the
// connection, and the client, which has its answer, may have written the next
// request into it already.
func (x *exchange) tell() {
	defer func() {
		if fault := recover(); fault != nil {
			x.log.Info("The stack of the panic", "stack", string(debug.Stack()))
			x.recorder.Problem(CausePanic)
			x.named().Error(fmt.Errorf("panic: %v", fault), "Answered, but what tells of the answer failed", "cause", CausePanic)
		}
	}()
	if x.after != nil {
		x.after()
	}
}

// deliver writes the whole body and does not wait for the end of the handler to let
// it leave.
func deliver(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// longestTimeout is how long the API server waits for an answer at most.
const longestTimeout = 30 * time.Second

// timeout is how long there is for an answer: a little less than what the API
// server says that it waits.
func timeout(request *http.Request) time.Duration {
	waits, err := time.ParseDuration(request.URL.Query().Get("timeout"))
	if err != nil || waits <= 0 || waits > longestTimeout {
		waits = longestTimeout
	}
	return waits * 9 / 10
}

// errBusy is why a review is answered without having been looked at.
var errBusy = errors.New("too many or too large reviews at the same time: this one was not looked at")

// wait takes an amount of a budget. It waits for half of the time that is left,
// so that there is some for the answer.
func wait(ctx context.Context, b *budget, amount int) bool {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return b.take(ctx, amount)
}

// read returns the body, or the HTTP code of an empty answer. The body is nil if
// there is no memory for it.
func (x *exchange) read(ctx context.Context, w http.ResponseWriter, request *http.Request) (body []byte, code int) {
	if !x.callers.permits(request) {
		x.problem(CauseClient, errNoClientCertificate)
		return nil, http.StatusForbidden
	}
	if kind := request.Header.Get("Content-Type"); kind != "application/json" {
		x.problem(CauseContentType, fmt.Errorf("content type is %q, must be application/json", kind))
		return nil, http.StatusOK
	}
	bounded := http.MaxBytesReader(w, request.Body, MaxBody)
	// Memory is taken for what comes, not for what a client says will come.
	whole := bytes.NewBuffer(make([]byte, 0, min(max(request.ContentLength, 0), usualBody)+bytes.MinRead))
	_, err := whole.ReadFrom(io.LimitReader(bounded, usualBody))
	if err == nil && whole.Len() == usualBody && request.ContentLength != usualBody {
		whole, err = x.readRest(ctx, whole, bounded, request.ContentLength)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		x.problem(CauseTooLarge, fmt.Errorf("the body exceeds %d bytes", MaxBody))
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		x.problem(CauseBody, err)
		return nil, http.StatusBadRequest
	case whole == nil:
		return nil, 0
	}
	return whole.Bytes(), 0
}

// readRest reads what follows the beginning of a large body, whose length is -1
// if the client does not say it. Without memory for it, the beginning says what it
// is about, the rest is dropped, and the body is nil.
func (x *exchange) readRest(ctx context.Context, beginning *bytes.Buffer, rest io.Reader, length int64) (*bytes.Buffer, error) {
	if length < 0 || length > MaxBody {
		length = MaxBody
	}
	if !wait(ctx, x.memory, int(length)) {
		x.about = excerpt.Head(beginning.Bytes())
		_, err := io.Copy(io.Discard, rest) // a client that still writes might not read the answer
		return nil, err
	}
	x.held = int(length)
	beginning.Grow(int(length) - beginning.Len() + bytes.MinRead)
	_, err := beginning.ReadFrom(rest)
	return beginning, err
}

// answer returns the response to the review in a body, nil if there was no memory
// for it.
func (x *exchange) answer(ctx context.Context, body []byte) *admissionv1.AdmissionResponse {
	if body != nil && wait(ctx, x.answers, 1) {
		defer x.answers.give(1)
		return x.admit(ctx, body)
	}
	if body != nil {
		x.about = excerpt.Head(body)
	}
	response := &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{warning(unchanged + errBusy.Error())}}
	if x.about != nil {
		response.UID = x.about.UID
		if handler, ok := x.find(x.about); ok {
			x.label = handler.Label
		}
	}
	x.problem(CauseBusy, errBusy)
	return response
}

// unchanged begins the warning about an object that was let through.
const unchanged = "VPA admission controller: left unchanged: "

// admit returns the response to one review.
func (x *exchange) admit(ctx context.Context, body []byte) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{Allowed: true}
	request, err := x.request(body)
	if err != nil {
		return response
	}
	response.UID, x.about = request.UID, request
	handler, ok := x.find(request)
	if !ok {
		x.problem(CauseResource, fmt.Errorf("no handler for resource %q of group %q", request.Resource.Resource, request.Resource.Group))
		return response
	}
	x.label = handler.Label
	answer := x.call(ctx, handler, request)
	x.after = answer.After
	if err := x.fill(response, answer); err != nil {
		x.problem(CauseResponse, err)
	}
	if answer.Err != nil {
		x.status = statusError
	}
	return response
}

// request reads the request of a review. Reading is our code, too: a panic in it
// counts as one.
func (x *exchange) request(body []byte) (request *admissionv1.AdmissionRequest, err error) {
	cause := CauseBody
	defer func() {
		if fault := recover(); fault != nil {
			x.log.Info("The stack of the panic", "stack", string(debug.Stack()))
			cause, err = CausePanic, fmt.Errorf("panic: %v", fault)
		}
		if err != nil {
			x.problem(cause, err)
		}
	}()
	return x.reads(body)
}

func (x *exchange) find(request *admissionv1.AdmissionRequest) (Handler, bool) {
	for _, h := range x.handlers {
		if h.Resource.Group == request.Resource.Group && h.Resource.Resource == request.Resource.Resource {
			return h, true
		}
	}
	return Handler{}, false
}

// call runs the handler and turns a panic into an answer. What the handler found
// out about the name of the object is used when it fails.
func (x *exchange) call(ctx context.Context, h Handler, request *admissionv1.AdmissionRequest) (answer Answer) {
	defer func() {
		cause := recover()
		if cause == nil && answer.Err == nil {
			return
		}
		log := x.named()
		if cause != nil {
			log.Info("The stack of the panic", "stack", string(debug.Stack()))
			answer = Answer{Err: fmt.Errorf("panic: %v", cause), Cause: CausePanic}
		}
		x.recorder.Problem(answer.Cause)
		log.Error(answer.Err, "Allowed unchanged because of a problem", "cause", answer.Cause)
		answer.Patch = nil
		answer.Warnings = append(answer.Warnings, warning(unchanged+answer.Err.Error()))
	}()
	return h.Answer(klog.NewContext(ctx, x.log), request)
}

// longestWarning is what clients are sure to show.
const longestWarning = 256

// warning shortens a text to one line that clients show.
func warning(text string) string {
	if len(text) <= longestWarning {
		return text
	}
	return text[:longestWarning-3] + "..."
}

// usualPatch is room for the patch of most pods, in bytes.
const usualPatch = 2 << 10

func (x *exchange) fill(response *admissionv1.AdmissionResponse, answer Answer) error {
	x.status = statusSkipped
	response.Warnings = answer.Warnings
	if answer.Refusal != nil {
		response.Allowed, response.Result = false, answer.Refusal
		return nil
	}
	if len(answer.Patch) == 0 {
		return nil
	}
	raw, err := patch.Append(make([]byte, 0, usualPatch), answer.Patch)
	if err != nil {
		x.status = statusError
		return fmt.Errorf("encode the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = raw, &kind
	x.status = statusApplied
	return nil
}

// named is the log with what is known of the object.
func (x *exchange) named() klog.Logger {
	if x.about == nil {
		return x.log
	}
	return x.log.WithValues("resource", x.about.Resource.Resource, "namespace", x.about.Namespace, "name", x.about.Name, "uid", x.about.UID)
}

func (x *exchange) problem(cause Cause, err error) {
	x.recorder.Problem(cause)
	x.named().Error(err, "Request not answered as it should be", "cause", cause)
}
