//go:build race

package admission

func init() { raced = true }
