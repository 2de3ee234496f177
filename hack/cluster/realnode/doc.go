// Package realnode runs one real node next to simulated ones: a kubelet, the distribution's
// containerd and runc, and containers with cgroups. It requires root.
//
// Main is the first process of a new process and mount namespace, both created by package
// supervise. It hides the folders that the programs would write to on the machine (/run, /var/lib,
// /var/log, /proc/sys), starts containerd, loads an image with the program burn, and starts the
// kubelet. When it ends for any reason, the kernel kills everything in the process namespace and
// drops the mounts. Only empty cgroups remain, see package cgroup.
//
// Pods have no network, like pods on simulated nodes: a plugin that only reports success leaves
// their network namespaces empty (see files/network). With a pod network, a plugin of the
// distribution connects them, see package network.
package realnode
