// Package estimating translates the vectors of crane.json, attune.json and
// cruisekube.json that concern estimation into calls of production code.
//
// Handlers lists the kinds, ByDesign the cases in which Loadline is better than
// the reference on purpose. It computes nothing that production code computes.
package estimating
