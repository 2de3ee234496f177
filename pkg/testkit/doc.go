// Package testkit builds objects for tests. A test states only the fields it
// cares about; the builders fill in the rest.
//
// Pod, VPA and LimitRange build API objects from short texts such as
// "cpu=100m memory=200Mi". A text that cannot be read panics: it is a mistake
// in the test. AllRivals are cases that several programs must decide alike. Production code must not import the package.
package testkit
