// Package estimate turns the past of a container into a recommendation.
//
// A Chain is a list of named steps, each of which makes an amount of the one
// before. A Recipe has a chain for each kind and bound; ForName returns a
// recipe by its name. Explaining a recommendation runs the same chains and
// keeps the value after every step, so an explanation cannot differ from what
// was recommended.
//
// The package does not cap recommendations by policies and knows no pods;
// package policy does.
package estimate
