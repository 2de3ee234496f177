package serving

import (
	"runtime/debug"
	"strings"
)

// Version describes the running build: the module version where the build had
// one, else "development", then the commit and the Go version if known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "development"
	}
	version := info.Main.Version
	if version == "" || version == "(devel)" {
		version = "development"
	}
	parts := []string{version}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			parts = append(parts, setting.Value[:12])
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}
