// Package target answers three questions about workloads: which pods does a VPA's
// targetRef mean, which controller stands at the top above a pod, and which VPA
// controls a pod.
//
// Resolver reads the seven well-known kinds (Deployment, ReplicaSet, StatefulSet,
// DaemonSet, ReplicationController, Job, CronJob) from informer caches and every other
// kind through its scale subresource, whose answers it keeps. Selector gives the label
// selector of a target, Topmost walks up the owners, and Resolve does both as the
// recommender needs it. Key names a workload; two spellings of the same one give equal
// keys. Claims is the index of what VPAs target: CompareClaims puts those of one workload
// in order. Finder asks both for a pod that is about to be created, and a Prefetcher reads
// ahead what it will need.
//
// Errors are sentences for users: they end up in the condition ConfigUnsupported.
package target
