// Package realnode runs one real node beside the simulated ones: a kubelet, the
// distribution's containerd and runc, and containers with cgroups of their own.
// It needs root.
//
// Main is the node's process: the first of a process namespace and in a mount
// namespace of its own, both made by package supervise. It hides what the
// programs would write to on the machine (/run, /var/lib, /var/log, /proc/sys),
// then starts containerd, loads an image that holds nothing but the program burn,
// and starts the kubelet.
//
// When that process ends, whatever the reason, the kernel kills everything in
// the process namespace and drops the mounts. Only empty cgroups stay; see package
// cgroup. The programs are unpacked by package deb.
//
// Pods have no network, as on the simulated nodes: their network namespaces are
// left empty by a plugin that only says that all is well (see files/network). With
// a pod network a plugin of the distribution connects them; see package network.
package realnode
