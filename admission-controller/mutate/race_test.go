//go:build race

package mutate

func init() { slowdown = 4 }
