package instance

import (
	"fmt"
	"net"
)

// Loopback is the only address anything listens on.
const Loopback = "127.0.0.1"

// FreePorts asks the kernel for one free port per name. They are all held until
// the last is known, so they differ; somebody else may still take one before
// its component listens, and then the start is tried again with others.
func FreePorts(names []string) (map[string]int, error) {
	ports := make(map[string]int, len(names))
	for _, name := range names {
		listener, err := net.Listen("tcp", net.JoinHostPort(Loopback, "0"))
		if err != nil {
			return nil, fmt.Errorf("no free port on %s for %s: %w", Loopback, name, err)
		}
		defer func() { _ = listener.Close() }()
		ports[name] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
