package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const hold = 5 * time.Second

type flood struct {
	address     string
	encrypted   bool
	connections int
	sent        []byte
	slowly      []byte // sent once a second, byte by byte
}

// unfinishedHeader returns a header of at least the given size without its end.
func unfinishedHeader(size int) []byte {
	var header bytes.Buffer
	header.WriteString("GET /probe HTTP/1.1\r\nHost: a\r\n")
	for i := 0; header.Len() < size; i++ {
		fmt.Fprintf(&header, "%x:\r\n", i)
	}
	return header.Bytes()
}

func headers(ctx context.Context, _ int) error {
	return together(ctx,
		flood{address: webhook, encrypted: true, connections: 400, sent: unfinishedHeader(60 << 10)},
		flood{address: webhook, encrypted: true, connections: 400, sent: unfinishedHeader(7 << 10)},
		flood{address: webhook, connections: 200, sent: []byte{22}}, // the first byte of a TLS handshake
		flood{address: webhook, encrypted: true, connections: 200, slowly: []byte("GET /probe HTTP/1.1\r\n")},
	)
}

func bodies(ctx context.Context, _ int) error {
	start := []byte(`POST / HTTP/1.1` + "\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n" +
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},"object":`)
	return together(ctx, flood{address: webhook, encrypted: true, connections: 100, sent: append(start, bytes.Repeat([]byte(`{"a":[`), 1<<20/6)...)})
}

// metrics floods the metrics ports with large headers, slow senders and slow readers.
func metrics(ctx context.Context, _ int) error {
	var all []flood
	for _, d := range programs {
		all = append(all,
			flood{address: d.Address, connections: 40, sent: unfinishedHeader(1 << 20)},
			flood{address: d.Address, connections: 100, sent: unfinishedHeader(7 << 10)},
			flood{address: d.Address, connections: 100, slowly: []byte("GET /metrics HTTP/1.1\r\n")},
			// The responses are never read.
			flood{address: d.Address, connections: 50, sent: []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 100))},
		)
	}
	return together(ctx, all...)
}

func together(ctx context.Context, floods ...flood) error {
	errs := make([]error, len(floods))
	var running sync.WaitGroup
	for i, f := range floods {
		running.Go(func() { errs[i] = f.run(ctx) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// run opens the connections, sends, holds and closes them. It returns an error only if the port
// accepts no connection at all.
func (f flood) run(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, hold)
	defer stop()
	var last error
	opened := 0
	for i := range f.connections {
		c, err := f.dial(ctx, i)
		if err != nil {
			last = err
			continue
		}
		defer c.Close()
		opened++
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a closed connection fails at Write
		_, _ = c.Write(f.sent)                              // fails if the program closed the connection, as it should
		if len(f.slowly) > 0 {
			go trickle(ctx, c, f.slowly)
		}
	}
	if opened == 0 && ctx.Err() == nil {
		return fmt.Errorf("%s accepts no connection: %w", f.address, last)
	}
	<-ctx.Done()
	return nil
}

// dial opens a connection from one of many local addresses, to imitate different pods.
func (f flood) dial(ctx context.Context, i int) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%50))}, Timeout: 2 * time.Second}
	if f.encrypted {
		return (&tls.Dialer{NetDialer: &d, Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", f.address)
	}
	return d.DialContext(ctx, "tcp", f.address)
}

func trickle(ctx context.Context, c net.Conn, text []byte) {
	for i := range text {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := c.Write(text[i : i+1]); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}
