// Package server is the HTTPS side of the webhook: it reads AdmissionReviews,
// calls the Handler of their resource and writes the answers.
//
// It never stands in the way: what it cannot read or does not know is allowed
// unchanged, and so is a request whose handler panics. Every answer is counted
// by resource and status, and every problem by its cause, through a Recorder.
//
// Of a review it decodes only what the handlers ask for, with bounds. Beater keeps the
// heartbeat Lease of the webhook as long as it can reach itself.
//
// It has its own mux, so nothing another package registered is reachable, and
// it bounds the size and the duration of a request. It knows nothing of pods
// and VPAs; the handlers do.
package server
