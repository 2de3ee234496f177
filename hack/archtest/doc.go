// Package archtest holds the architecture of Loadline as tests: which package may import which, what the pure core must
// not touch, what a daemon must not link, and that no code of the core serves tools alone. It also follows the links of
// the pages for people. A red test names the package or page and the broken rule.
//
// It has no code besides its tests.
package archtest
