package sharing

// CPULimit is what becomes of the CPU limits of pods that share. A limit that follows a share
// would throttle the peaks that the headroom is for.
type CPULimit uint8

// What becomes of them.
const (
	KeepLimit   CPULimit = iota // they stay, and bound the requests
	RemoveLimit                 // new pods have none; the limit of a running pod cannot be removed: NodeLimit
	NodeLimit                   // that of a running pod becomes what its node has for pods
)
