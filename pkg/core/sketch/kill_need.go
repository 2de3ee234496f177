package sketch

// After a kill a container is taken to need this multiple of what it had, and at
// least so many bytes more. With each further kill that comes soon the multiple
// applies once more and the bytes double, up to twice of what it had or, if that is
// more, the first step.
const (
	killRatio = 1.2
	killBump  = 16 << 20
	mostKills = 5
)

// NeededAfterKill returns what a container that had so many bytes at most is taken to need after a
// number of kills, from 1 on.
func NeededAfterKill(had float64, kills uint8) float64 {
	first := max(killRatio*had, had+killBump)
	ratio, bump := 1.0, float64(killBump)/2
	for range kills {
		ratio, bump = ratio*killRatio, bump*2
	}
	return max(first, min(max(ratio*had, had+bump), 2*had))
}
