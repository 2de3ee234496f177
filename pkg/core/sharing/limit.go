package sharing

// CPULimit is the treatment of the CPU limits of pods that share. A limit that follows a share
// would throttle the peaks that the headroom is for.
type CPULimit uint8

// The treatments of CPU limits.
const (
	KeepLimit   CPULimit = iota // kept, and cap the requests
	RemoveLimit                 // removed from new pods; in running pods the same as NodeLimit
	NodeLimit                   // raised in running pods to the allocatable CPU of the node
)
