// Package cachesize measures the memory of informer caches, by resource and by namespace.
//
// Sizes collects the stores of informers, publishes a gauge for each resource and serves the
// largest namespaces. Of estimates the memory of one object.
package cachesize
