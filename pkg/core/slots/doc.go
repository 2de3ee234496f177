// Package slots keeps what a store numbers and finds again: Pages is a list whose
// slots stay where they are, Index finds things by namespace and key. Neither has a
// lock.
package slots
