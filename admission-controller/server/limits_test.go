package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a listener in memory, so that time limits pass in virtual time.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// within runs a server in virtual time and gives a TLS connection to it.
func within(t *testing.T, use func(t *testing.T, connection net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		cert, cas := selfSigned(t)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cas)
		p := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
		s := New(Config{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, Recorder: &recorder{},
			Handlers: []Handler{pods(func() Answer { return Answer{} })}})
		s.listener = p
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		near, far := net.Pipe()
		p.connections <- far
		connection := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
		use(t, connection)
		require.NoError(t, near.Close())
		stop()
		require.NoError(t, <-ended)
	})
}

const head = "POST / HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"

// ended tells after how long the other side closes a connection to which nothing
// more is sent.
func ended(t *testing.T, connection net.Conn) time.Duration {
	start := time.Now()
	_, err := io.Copy(io.Discard, connection)
	require.NoError(t, err)
	return time.Since(start)
}

func TestSlowClientsAreCutOff(t *testing.T) {
	t.Run("handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cert, _ := selfSigned(t)
			p := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
			s := New(Config{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, Recorder: &recorder{}})
			s.listener = p
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			near, far := net.Pipe()
			p.connections <- far
			require.LessOrEqual(t, ended(t, near), headerTime)
			stop()
			require.NoError(t, <-done)
		})
	})
	t.Run("header", func(t *testing.T) {
		within(t, func(t *testing.T, connection net.Conn) {
			_, err := io.WriteString(connection, head)
			require.NoError(t, err)
			require.LessOrEqual(t, ended(t, connection), headerTime)
		})
	})
	t.Run("body", func(t *testing.T) {
		within(t, func(t *testing.T, connection net.Conn) {
			_, err := io.WriteString(connection, head+"Content-Length: 1000\r\n\r\n{")
			require.NoError(t, err)
			require.LessOrEqual(t, ended(t, connection), bodyTime+time.Second)
		})
	})
}

func TestAnIdleConnectionIsKeptLongerThanTheAPIServerKeepsItAndThenClosed(t *testing.T) {
	within(t, func(t *testing.T, connection net.Conn) {
		_, err := fmt.Fprintf(connection, "%sContent-Length: %d\r\n\r\n%s", head, len(review), review)
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Contains(t, string(answer), `"allowed":true`)
		idle := ended(t, connection)
		require.Greater(t, idle, 2*time.Minute, "the API server closes after 90 s; if we were first, it could write into a closed connection")
		require.Equal(t, idleTime, idle)
	})
}

// A client that announces much and sends nothing takes no memory.
func TestMemoryIsTakenForWhatComes(t *testing.T) {
	within(t, func(t *testing.T, connection net.Conn) {
		_, err := fmt.Fprintf(connection, "%sContent-Length: %d\r\n\r\n", head, int64(1)<<40)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(connection, strings.NewReader(strings.Repeat(" ", MaxBody+1))) }()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	})
}
