// Package heartbeat tells the updater, and the kubelet, whether the webhook works.
//
// Beater renews a Lease as long as the webhook answers: over its own port, and on
// the way of the API server, which Way finds. The updater evicts pods only while
// that Lease is fresh. Health is what /health-check says.
//
// Both only look at the webhook; package server is the webhook.
package heartbeat
