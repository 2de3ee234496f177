// Package patch builds JSON patches (RFC 6902): the answer of the webhook, and
// what the updater sends.
//
// Operation is one step; Add and Test build steps and Path builds their
// pointers, with names escaped; Append writes them quickly. The package only writes patches; the API server
// applies them.
package patch
