// Package older reads and writes our objects with upstream's Go types of release 1.5.1, with which
// other controllers are built. It is a module of its own, because a module has one release of another;
// it has tests only, and runs with `make compat`. For the same reason it cannot import package compat, with
// which it has some helpers in common.
package older
