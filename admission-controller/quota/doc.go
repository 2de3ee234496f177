// Package quota keeps new pods inside the ResourceQuotas of their namespace.
//
// Room is what the quotas leave for one more pod. Cut moves what a pod should get
// towards what it would get from its own requests, as far as that is needed to
// fit: a pod with less than recommended is better than one that is refused.
//
// Other pods may be created at the same time, and the quotas known here are some
// milliseconds old, so the API server can still refuse a pod; its controller then
// tries again. Nothing here changes or creates quotas.
package quota
