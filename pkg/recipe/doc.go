// Package recipe says by which recipe each VPA is served.
//
// A Book has the recipe of the program and those that VPAs ask for by annotation;
// a Choice is one of them. One that cannot be used is replaced by that of the
// program, and says why.
//
// What recipes are, package cookbook knows.
package recipe
