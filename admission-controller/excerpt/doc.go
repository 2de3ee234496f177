// Package excerpt reads what the webhook needs of reviews and of pods, and skips
// the rest.
//
// A pod as the API server sends it has some kilobytes, of which the webhook needs
// a third. Decoding it by reflection took most of the time of a review. Request
// and Pod run over the bytes once and build the API types from the members that
// count; the others they only step over. Reader is what they step with.
//
// What is left out is not checked. Names of members match exactly, as the API
// server writes them; of members with the same name the last counts. Nothing that
// is returned shares memory with the input, except the objects of a Request.
//
// Whoever may create a pod writes what is read here. So there are bounds, far above
// what real objects have: a text beyond them is ErrTooMuch, and nothing is ever
// given to a decoder that has none.
package excerpt
