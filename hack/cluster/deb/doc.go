// Package deb gets the programs of a container runtime, and those of a pod network,
// from the distribution: Fetch downloads the packages and unpacks them into the user's cache. Nothing is
// installed, so no configuration, service or dependency comes with them.
package deb
