// Package layers holds the architecture of Loadline as tests: which package
// may import which, what the pure core must not touch, how long a file may
// become, and what a daemon must not link. A red test names the package and
// the broken rule.
//
// It has no code besides its tests.
package layers
