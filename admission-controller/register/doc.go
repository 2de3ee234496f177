// Package register tells the API server about the webhook: it keeps the
// MutatingWebhookConfiguration as Config describes it.
//
// Registrar.Apply uses server-side apply, so several replicas can do it at the
// same time, fields that others set stay, and there is never a moment without
// the configuration. It is never deleted: when the program is gone the webhook
// fails, and pods start without it.
package register
