// Package excerpt takes out of JSON what is needed, without reading the rest.
//
// A pod as the API server sends it has some kilobytes, of which the webhook needs
// a third. Decoding all of it took most of the time of a review. Of copies the
// wanted members of objects, Find returns some of one object; both run over the bytes once
// and only look for where strings, objects and lists end.
//
// What is left out is not checked. What is returned can still be malformed, so
// the caller decodes it with encoding/json, which says what is wrong. Names of
// members match exactly, as the API server writes them.
package excerpt
