package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/certs"
	"loadline.dev/loadline/pkg/kube/lease"
	"loadline.dev/loadline/pkg/process"
)

// Beater writes the heartbeat Lease, but only while the webhook answers probes: over its own port, and on the way that
// the API server takes. Where that way is known it is probed, and the own port, which decides about the health of the
// program, each two minutes. An answer is good for two heartbeats. The updater evicts pods as long as the heartbeat is
// fresh.
type Beater struct {
	Lease   *lease.Beat
	Server  *Server      // of the own port
	Service ServiceProbe // for the way of the API server
	Health  *Health      // by the answers of the own port
	// Keeper tells why the API server may not call the webhook. An error stops the heartbeat, and no more: another process
	// could not register either, and what was registered before may still serve.
	Keeper *certs.Keeper

	blind    bool      // it was said that no way is known
	own      Prober    // of the own port
	service  Prober    // of the API server
	answered time.Time // when the own port last did
	good     bool      // the answer before the last heartbeat is good for the next, too
}

// selfProbeEvery is how often the own port is probed where the way of the API server is probed each time: one that
// fails is followed by the next with each heartbeat, and the program is healthy for five minutes after an answer.
const selfProbeEvery = 2 * time.Minute

// expireTime is how long the end of the program may be held up by the Lease.
const expireTime = 3 * time.Second

// Run beats until ctx ends; then it makes the Lease stale, so that nothing is evicted in the minute that follows.
func (b *Beater) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	start, wrote := time.Now(), false
	report := func(err error) {
		switch {
		case err == nil:
			wrote = true
		case ctx.Err() != nil:
		case !wrote && time.Since(start) < StartGrace: // the Service sends nothing before the kubelet found it ready
			log.V(1).Info("No heartbeat yet", "reason", err)
		default:
			log.Error(err, "No heartbeat: the updater will not evict pods")
		}
	}
	// As the keeper of the certificate waits, which begins at the same time and has the same
	// interval: what wakes a program at rest costs more than what it does then.
	_ = wait.PollUntilContextCancel(ctx, b.Lease.Interval, true, func(ctx context.Context) (bool, error) {
		report(b.once(ctx))
		return false, nil
	})
	if !wrote {
		return nil
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), expireTime)
	defer cancel()
	return b.Lease.Expire(ending)
}

func (b *Beater) once(ctx context.Context) error {
	if b.good = !b.good; b.good {
		if err := b.probe(ctx); err != nil {
			b.good = false
			return err
		}
	}
	if err := b.Keeper.Registered(); err != nil {
		return err
	}
	return b.Lease.Write(ctx, time.Now())
}

func (b *Beater) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.Lease.Interval)
	defer cancel()
	b.own.Environment, b.service.Environment = b.Service.Environment, b.Service.Environment
	trusted := b.Keeper.Holder.Trusted()
	service, known := b.Service.Target(ctx, trusted)
	if now := time.Now(); !known || !now.Before(b.answered.Add(selfProbeEvery)) {
		own, err := b.Server.SelfProbe(b.Service.Host, trusted)
		if err == nil {
			err = b.own.Probe(ctx, own, now)
		}
		if err != nil {
			b.answered = time.Time{}
			return err
		}
		b.answered = now
		b.Health.Alive()
	}
	if known {
		return b.service.Probe(ctx, service, time.Now())
	}
	if !b.blind {
		klog.FromContext(ctx).Info("The way of the API server to the webhook is not known here, so only the own port is probed before each heartbeat", "host", service.Host)
	}
	b.blind = true
	return nil
}

// ProbeTarget is a way to a webhook.
type ProbeTarget struct {
	Address string // to connect to, host:port
	Host    string // name in the certificate
	CAs     []byte // PEM; empty, because somebody else publishes them: any certificate will do
}

// SelfProbe returns the way to this server over the loopback device.
func (s *Server) SelfProbe(host string, cas []byte) (ProbeTarget, error) {
	_, port, err := net.SplitHostPort(s.listener.Addr().String())
	return ProbeTarget{Address: net.JoinHostPort("127.0.0.1", port), Host: host, CAs: cas}, err
}

// reconnect is how long probes use a connection, which says nothing about new ones: the API
// server needs one for the pods of an eviction where it has not called for 90 s.
const reconnect = 5 * time.Minute

// Prober asks webhooks whether they answer. A new connection costs ten times what a request does, so it keeps the one
// that it has, as the API server does. It is used by one goroutine.
type Prober struct {
	Environment process.Environment

	transport *http.Transport // nil: there is no connection
	route     ProbeTarget     // of transport
	since     time.Time
}

// Probe asks whether the webhook at the end of a route answers. A new connection is
// made as the API server would make it: for the given name, trusting only the CAs;
// it is made when the route or the CAs have changed, too, and after a failure.
func (p *Prober) Probe(ctx context.Context, to ProbeTarget, now time.Time) error {
	same := p.route.Address == to.Address && p.route.Host == to.Host && bytes.Equal(p.route.CAs, to.CAs)
	if !same || !now.Before(p.since.Add(reconnect)) {
		p.close()
	}
	if p.transport == nil {
		p.transport, p.route, p.since = p.connect(to), to, now
	}
	err := to.ask(ctx, p.transport)
	if err != nil {
		p.close()
	}
	return err
}

func (p *Prober) close() {
	if p.transport != nil {
		p.transport.CloseIdleConnections()
		p.transport = nil
	}
}

func (p *Prober) connect(r ProbeTarget) *http.Transport {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.CAs)
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: r.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: len(r.CAs) == 0},
		MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return p.Environment.Dial(ctx, network, r.Address)
		},
	}
}

func (r ProbeTarget) ask(ctx context.Context, transport *http.Transport) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(r.Host, "443")+ProbePath, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("the webhook does not answer a probe of its own at %s: %w", r.Address, err)
	}
	// What is left of the body decides only whether the connection can be kept.
	_, _ = io.CopyN(io.Discard, response.Body, longestProbe)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the webhook answers a probe of its own at %s with %s", r.Address, response.Status)
	}
	return nil
}

// longestProbe is more than the answer to a probe has, in bytes.
const longestProbe = 1 << 10

// ServiceProbe finds how the API server reaches the webhook.
type ServiceProbe struct {
	Foreign     bool   // somebody else registers the webhook
	URL         string // under which it is registered; empty: through the Service
	Service     string // its name, in the namespace of the program
	Host        string // name in the certificate; with a Service the name that DNS knows
	Environment process.Environment
}

// Target returns the way through the Service, or by URL. It is false where somebody else registers the webhook, and
// where the Service cannot be found from here: pods of the host's network may have no cluster DNS, and the API server
// does not need it. Trusted are the CAs (PEM) that the API server trusts.
func (w ServiceProbe) Target(ctx context.Context, trusted []byte) (ProbeTarget, bool) {
	route := ProbeTarget{Host: w.Host, CAs: trusted}
	if w.Foreign {
		return route, false
	}
	if w.URL != "" {
		if target, err := url.Parse(w.URL); err == nil {
			port := target.Port()
			if port == "" {
				port = servicePort
			}
			route.Address = net.JoinHostPort(target.Hostname(), port)
			return route, true
		}
	}
	address := os.Getenv(strings.ToUpper(strings.ReplaceAll(w.Service, "-", "_")) + "_SERVICE_HOST")
	if found, err := w.Environment.LookupHost(ctx, route.Host); err == nil && len(found) > 0 {
		address = found[0]
	}
	route.Address = net.JoinHostPort(address, servicePort)
	return route, address != ""
}

// servicePort is where the API server looks for webhooks.
const servicePort = "443"
