// Package access has the flags that say who asks Prometheus, and how long an
// answer may take.
//
// Access is a flag group like those of package flags; Client turns it into the
// settings of a prometheus.Client. Each program adds its own flags for what is
// asked.
package access
