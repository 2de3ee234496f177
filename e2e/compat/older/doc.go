// Package older reads and writes our objects with the Go types of upstream release 1.5.1, which
// other controllers use. It is a separate module because a module can depend on one release only.
// For the same reason it cannot import package compat and duplicates some of its helpers. It has
// tests only, and runs with `make compat`.
package older
