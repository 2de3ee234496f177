// Package realnode runs one real node beside the simulated ones: a kubelet, the
// distribution's containerd and runc, and containers with cgroups of their own.
// It needs root.
//
// Fetch gets the distribution's packages and unpacks them into the user's cache.
// Main is the node's process: the first of a process namespace and in a mount
// namespace of its own, both made by package supervise. It hides what the
// programs would write to on the machine (/run, /var/lib, /var/log, /proc/sys),
// then starts containerd, loads an image that holds nothing but the program burn,
// and starts the kubelet.
//
// When that process ends, whatever the reason, the kernel kills everything in
// the process namespace and drops the mounts. Only empty cgroups stay: a Group is
// named after the supervisor that made it, so that RemoveStale can tell the
// groups of dead ones, and the next start or stop of any instance removes them.
//
// Pods have no network, as on the simulated nodes: their network namespaces are
// left empty by a plugin that only says that all is well (see files/network).
package realnode
