// Package pki issues the certificates of one local control plane: an Authority
// with a key of its own signs server certificates for names and addresses, and
// client certificates for users and their groups.
//
// It only makes them; where they are kept, and who gets which, is decided in
// package instance. There is no renewal: an instance lives for hours, its
// certificates for a year.
package pki
