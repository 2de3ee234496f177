// Command conformance runs every vector file of a directory through production
// code and says which cases pass.
//
// Each kind of case has a handler, which only translates: the input into calls
// of production code, its results into the form of the expected output. Those
// for recommender.json are in package recommending, those about estimation in
// estimating. A kind without handler is
// reported as not yet supported. Cases in which Loadline is better than the
// reference on purpose are listed with the handlers.
//
// The exit code is 0 if no case failed, else 1; 2 means wrong usage. It computes
// nothing that production code computes.
package main
