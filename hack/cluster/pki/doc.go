// Package pki issues the certificates of one local control plane for servers, users and groups.
// There is no renewal: an instance lives for hours, its certificates for a year.
package pki
