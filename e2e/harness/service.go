package harness

import (
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// Service stands for a Service of the cluster, whose network the local control
// plane does not have: it takes connections at one address and hands each to the
// next of its backends.
type Service struct {
	listener net.Listener
	next     atomic.Uint64

	mu       sync.Mutex
	backends []string
}

// NewService returns a Service without backends on a loopback port. It refuses
// connections until it has one, and works until Close.
func NewService() (*Service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Service{listener: listener}
	go s.serve()
	return s, nil
}

// Address is where it listens, host:port.
func (s *Service) Address() string { return s.listener.Addr().String() }

// Close ends it; open connections stay.
func (s *Service) Close() error { return s.listener.Close() }

// Add hands new connections to a backend, too.
func (s *Service) Add(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = append(s.backends, address)
}

// Remove hands no new connections to a backend. Those that are open stay, as with
// a pod that is taken out of a Service.
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

// pipe copies until from ends and then ends to in that direction.
func pipe(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from) // the end of a connection is all that it may tell
	_ = to.CloseWrite()
}
