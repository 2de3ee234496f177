// Package patch is the JSON patch (RFC 6902) that the webhook answers with.
//
// Operation is one step; Add and Test build steps and Path builds their
// pointers, with names escaped. The package only writes patches; the API server
// applies them.
package patch
