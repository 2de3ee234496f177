package instance

import (
	"fmt"
	"net"
)

// Loopback is the address of all listeners.
const Loopback = "127.0.0.1"

// FreePorts returns a free port for each name. It holds all ports until the last is known, so they
// differ. If another program takes one before its component listens, the start is retried.
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
