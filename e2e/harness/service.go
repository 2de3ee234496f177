package harness

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// Service simulates a Service of the cluster, because the local control plane has no network. It
// accepts connections at one address and forwards each to the next backend.
type Service struct {
	listener net.Listener
	next     atomic.Uint64

	mu       sync.Mutex
	backends []string
}

// NewService returns a Service without backends on a loopback port. It rejects connections until it
// has a backend, and works until Close.
func NewService() (*Service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Service{listener: listener}
	go s.serve()
	return s, nil
}

// Address is the listen address, host:port.
func (s *Service) Address() string { return s.listener.Addr().String() }

// Close stops accepting connections. Open connections stay.
func (s *Service) Close() error { return s.listener.Close() }

// Add adds a backend for new connections.
func (s *Service) Add(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = append(s.backends, address)
}

// Remove removes a backend for new connections. Open connections stay, as with a pod that is
// removed from a Service.
func (s *Service) Remove(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = slices.DeleteFunc(s.backends, func(b string) bool { return b == address })
}

func (s *Service) serve() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		go s.connect(client.(*net.TCPConn))
	}
}

func (s *Service) connect(client *net.TCPConn) {
	defer client.Close()
	s.mu.Lock()
	backends := slices.Clone(s.backends)
	s.mu.Unlock()
	if len(backends) == 0 {
		return
	}
	connection, err := net.Dial("tcp", backends[s.next.Add(1)%uint64(len(backends))])
	if err != nil {
		return
	}
	backend := connection.(*net.TCPConn)
	defer backend.Close()
	var both sync.WaitGroup
	both.Go(func() { pipe(client, backend) })
	both.Go(func() { pipe(backend, client) })
	both.Wait()
}

// pipe copies until from ends and then closes to in that direction.
func pipe(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from) // an error only means the end of the connection
	_ = to.CloseWrite()
}
