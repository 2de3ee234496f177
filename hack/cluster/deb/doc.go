// Package deb provides a container runtime and a pod network from the distribution. Fetch unpacks
// packages into the user's cache. It installs nothing, so there are no configuration files,
// services or dependencies.
package deb
