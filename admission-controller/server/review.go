package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/serving"
)

// Answer is the decision of a Handler about one object. The zero value allows it unchanged.
type Answer struct {
	Refusal  *metav1.Status // nil: allowed
	Patch    []client.PatchOperation
	Warnings []string
	// Err is why the object was not handled completely. It is allowed, with the Patch if there is one.
	// Cause is the metric label of Err, or of a problem that was solved.
	Err   error
	Cause Cause
	// After runs once the answer was sent successfully, for reports that must not delay the object.
	// The next request of the same connection waits for it.
	After func()
}

// Handler decides about one object.
type Handler struct {
	Resource metav1.GroupResource
	Label    string // value of the metric label "resource"
	// Guards means that no object may bypass the handler. A server too busy to check it rejects it
	// with a request to retry. Other objects are allowed unchanged.
	Guards bool
	Answer func(ctx context.Context, request *admissionv1.AdmissionRequest) Answer
}

// Cause is why a request could not be handled. The set is closed.
type Cause string

// Causes of problems.
const (
	CauseContentType Cause = "content_type" // the body is not JSON
	CauseTooLarge    Cause = "too_large"    // the body exceeds MaxBody
	CauseBody        Cause = "body"         // the body is no AdmissionReview
	CauseResource    Cause = "resource"     // no handler for the resource or version
	CauseObject      Cause = "object"       // the object cannot be read
	CauseTooComplex  Cause = "too_complex"  // the object exceeds a decoding bound
	CauseBusy        Cause = "busy"         // too many or too large concurrent reviews
	CauseOwner       Cause = "owner"        // the owners of a pod cannot be read
	CauseBoost       Cause = "boost"        // a startup boost cannot be computed
	CauseLimitRange  Cause = "limit_range"  // LimitRanges cannot be listed
	CausePanic       Cause = "panic"        // a bug in this program
	CauseResponse    Cause = "response"     // the answer cannot be written
	CauseClient      Cause = "client"       // the client is not the API server
	CauseConnection  Cause = "connection"   // closed, because too many were open
	CauseNote        Cause = "note"         // a new pod has annotations reserved for the updater
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

// Recorder counts requests, steps and problems.
type Recorder interface {
	Request(status, resource string, took time.Duration)
	Step(step string, took time.Duration)
	Problem(cause Cause)
}

// Memory limits of reviews. Any tenant that may create pods can send many large ones at a time.
const (
	// MaxBody is the largest request body in bytes.
	MaxBody = 5 << 20
	// maxSmallBody is the size that nearly all bodies stay below, in bytes.
	maxSmallBody = 64 << 10
	// initialBody is the first buffer of a body in bytes. A full buffer doubles.
	initialBody = 4 << 10
	// maxLargeBytes limits the bytes of all bodies above maxSmallBody in memory.
	maxLargeBytes        = 40 << 20
	maxConcurrentReviews = 100
	// namespaceShare is the divisor of maxConcurrentReviews for one namespace.
	namespaceShare = 4
	// maxLargePerNamespace limits concurrent reviews above maxSmallBody in one namespace.
	maxLargePerNamespace = 2
)

type reviewer struct {
	handlers      []Handler
	recorder      Recorder
	callers       Callers
	log           klog.Logger
	decodeRequest func(body []byte) (*admissionv1.AdmissionRequest, error)
	memory        *memory // of bodies above maxSmallBody
	answers       *slots
	throttle      serving.Throttle
}

type exchange struct {
	*reviewer
	started, step time.Time
	status, label string
	decoded       *admissionv1.AdmissionRequest // nil until decoded
	after         func()                        // nil: nothing
	reservation   *reservation                  // of reviewer.memory, nil: none
	connection    *serving.Connection           // nil: unknown
	buffer        *[]byte                       // of the body, nil: none yet
}

func (x *exchange) recordStep(step string) {
	now := time.Now()
	x.recorder.Step(step, now.Sub(x.step))
	x.step = now
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	x := &exchange{reviewer: r, started: now, step: now, status: statusError, label: labelUnknown, connection: serving.ConnectionOf(request.Context())}
	defer func() {
		x.release()
		total := time.Since(x.started)
		r.recorder.Step(StepTotal, total)
		r.recorder.Request(x.status, x.label, total)
		x.finish()
		x.reuse()
	}()
	ctx, cancel := context.WithDeadline(request.Context(), now.Add(timeout(request)))
	defer cancel()
	body, code := x.read(ctx, w, request)
	x.recordStep(StepRead)
	if code != 0 {
		w.WriteHeader(code)
		return
	}
	x.connection.Working()
	response := x.answer(ctx, body)
	x.recordStep(StepAdmit)
	answer, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
	x.recordStep(StepBuild)
	if err == nil {
		err = writeResponse(w, answer)
	}
	x.recordStep(StepWrite)
	if err != nil { // the answer was lost
		x.status, x.after = statusError, nil
		x.problem(CauseResponse, err)
	}
}

// finish runs After. A panic would cut the connection, on which a next request may be written.
func (x *exchange) finish() {
	defer func() {
		if fault := recover(); fault != nil {
			x.report(CausePanic, fmt.Errorf("panic: %v", fault), "Failed to report an answered request", debug.Stack())
		}
	}()
	if x.after != nil {
		x.after()
	}
}

func writeResponse(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// maxTimeout is the longest time that the API server waits for an answer.
const maxTimeout = 30 * time.Second

// timeout returns the time for an answer, nine tenths of the timeout in the API server's request.
func timeout(request *http.Request) time.Duration {
	limit, err := time.ParseDuration(request.URL.Query().Get("timeout"))
	if err != nil || limit <= 0 || limit > maxTimeout {
		limit = maxTimeout
	}
	return limit * 9 / 10
}

var errBusy = errors.New("too many or too large concurrent reviews: this one was not checked")

// withHalfTimeout ends halfway between from and the deadline of ctx. The rest is for the answer.
func withHalfTimeout(ctx context.Context, from time.Time) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, from.Add(end.Sub(from)/2))
}

// answer returns the response to a review. A nil body means that there was no memory for it.
func (x *exchange) answer(ctx context.Context, body []byte) *admissionv1.AdmissionResponse {
	if body == nil {
		return x.busy()
	}
	end := x.answers.begin(ctx, namespaceOf(body), len(body) > maxSmallBody)
	if end == nil {
		x.decoded = decodeHead(body)
		return x.busy()
	}
	defer end()
	return x.admit(ctx, body)
}

func (x *exchange) busy() *admissionv1.AdmissionResponse {
	x.problem(CauseBusy, errBusy)
	response := &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{warning(unchangedPrefix + errBusy.Error())}}
	if x.decoded == nil {
		return response
	}
	response.UID = x.decoded.UID
	handler, ok := x.findHandler(x.decoded)
	if !ok {
		return response
	}
	x.label = handler.Label
	if handler.Guards {
		// An HTTP error would allow the object if the webhook configuration ignores failures.
		response.Allowed, response.Warnings = false, nil
		response.Result = new(apierrors.NewTooManyRequests(errBusy.Error()+"; try again", 1).Status()) // after a second
	}
	return response
}

const unchangedPrefix = "VPA admission controller: allowed unchanged: "

func (x *exchange) admit(ctx context.Context, body []byte) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{Allowed: true}
	request, err := x.decode(body)
	if err != nil {
		return response
	}
	response.UID, x.decoded = request.UID, request
	handler, ok := x.findHandler(request)
	if !ok {
		x.problem(CauseResource, fmt.Errorf("no handler for resource %q of group %q", request.Resource.Resource, request.Resource.Group))
		return response
	}
	x.connection.Trust()
	x.label = handler.Label
	answer := x.callHandler(ctx, handler, request)
	if answer.Err == nil && answer.Cause != "" {
		x.recorder.Problem(answer.Cause)
	}
	x.after = answer.After
	if err := x.setResponse(response, answer); err != nil {
		x.problem(CauseResponse, err)
	}
	if answer.Err != nil {
		x.status = statusError
	}
	return response
}

func (x *exchange) decode(body []byte) (request *admissionv1.AdmissionRequest, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
			x.report(CausePanic, err, notAnswered, debug.Stack())
		} else if err != nil {
			x.problem(CauseBody, err)
		}
	}()
	return x.decodeRequest(body)
}

func (x *exchange) findHandler(request *admissionv1.AdmissionRequest) (Handler, bool) {
	for _, h := range x.handlers {
		if h.Resource.Group == request.Resource.Group && h.Resource.Resource == request.Resource.Resource {
			return h, true
		}
	}
	return Handler{}, false
}

// callHandler turns a panic into an answer. The log has the object name set by the handler.
func (x *exchange) callHandler(ctx context.Context, h Handler, request *admissionv1.AdmissionRequest) (answer Answer) {
	defer func() {
		cause := recover()
		if cause == nil && answer.Err == nil {
			return
		}
		var stack []byte
		if cause != nil {
			stack = debug.Stack()
			answer = Answer{Err: fmt.Errorf("panic: %v", cause), Cause: CausePanic}
		}
		x.report(answer.Cause, answer.Err, "Allowed unchanged because of a problem", stack)
		answer.Warnings = append(answer.Warnings, warning(unchangedPrefix+answer.Err.Error()))
	}()
	return h.Answer(klog.NewContext(ctx, x.log), request)
}

// maxWarning is the length in bytes that clients are sure to show.
const maxWarning = 256

func warning(text string) string {
	if len(text) <= maxWarning {
		return text
	}
	return text[:maxWarning-3] + "..."
}

func (x *exchange) setResponse(response *admissionv1.AdmissionResponse, answer Answer) error {
	x.status = statusSkipped
	response.Warnings = answer.Warnings
	if answer.Refusal != nil {
		response.Allowed, response.Result = false, answer.Refusal
		return nil
	}
	if len(answer.Patch) == 0 {
		return nil
	}
	raw, err := json.Marshal(answer.Patch)
	if err != nil {
		x.status = statusError
		return fmt.Errorf("encode the patch: %w", err)
	}
	response.Patch, response.PatchType = raw, new(admissionv1.PatchTypeJSONPatch)
	x.status = statusApplied
	return nil
}

func (x *exchange) logger() klog.Logger {
	if x.decoded == nil {
		return x.log
	}
	return x.log.WithValues("resource", x.decoded.Resource.Resource, "namespace", x.decoded.Namespace, "name", x.decoded.Name, "uid", x.decoded.UID)
}

const notAnswered = "Failed to answer request normally"

func (x *exchange) problem(cause Cause, err error) { x.report(cause, err, notAnswered, nil) }

// report counts a problem and logs it, throttled by cause. The stack is nil except after a panic.
func (x *exchange) report(cause Cause, err error, message string, stack []byte) {
	x.recorder.Problem(cause)
	notLogged, ok := x.throttle.Admits(string(cause), time.Now())
	if !ok {
		return
	}
	log := x.logger()
	if stack != nil {
		log.Info("The stack of the panic", "stack", string(stack))
	}
	if notLogged > 0 {
		log = log.WithValues("notLogged", notLogged)
	}
	log.Error(err, message, "cause", cause)
}
