// Package target answers two questions about workloads: which pods does a
// VPA's targetRef mean, and which controller stands at the top above a pod.
//
// Resolver reads the seven well-known kinds (Deployment, ReplicaSet,
// StatefulSet, DaemonSet, ReplicationController, Job, CronJob) from informer
// caches and every other kind through its scale subresource, whose answers it
// keeps. Selector gives the label selector of a target, Topmost walks up the
// owners, and Resolve does both as the recommender needs it. Key names a
// workload; two spellings of the same one give equal keys.
//
// Errors are sentences for users: they end up in the condition
// ConfigUnsupported. The package decides nothing about which VPA controls a
// pod; package ownership does.
package target
