// Package explain says why pods are left alone.
//
// A Teller hears after each pass which pods were left alone and why. It logs each
// pod when its reason changes, and for each VPA and reason that lasts it asks for
// one event, until the reason has gone.
//
// docs/reasons.md says the same for people, with what to do about each reason; a
// test keeps both alike.
package explain
