// Package hostile attacks the three programs, as deployed, from a namespace in which a tenant has
// the role edit, and from pods that reach their ports. It checks that the programs stay within
// their memory and serve other namespaces.
package hostile
