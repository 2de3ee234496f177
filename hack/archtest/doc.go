// Package archtest enforces the architecture of Loadline with tests: allowed imports, dependencies
// of the pure core, packages that daemons must not link, and core code that only tools use. It also
// checks the links in user docs. A failing test names the package or page and the violated rule.
//
// It contains only tests.
package archtest
