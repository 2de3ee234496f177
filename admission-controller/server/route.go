package server

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
)

// ServiceProbe finds how the API server reaches the webhook.
type ServiceProbe struct {
	Foreign bool                                                     // somebody else registers the webhook
	URL     string                                                   // under which it is registered; empty: through the Service
	Service string                                                   // its name, in the namespace of the program
	Host    string                                                   // name in the certificate; with a Service the name that DNS knows
	Resolve func(ctx context.Context, host string) ([]string, error) // net.Resolver.LookupHost
	Trusted func() []byte                                            // CAs that the API server trusts
}

// Target returns the way through the Service, or by URL. It is false where
// somebody else registers the webhook, and where the Service cannot be found from
// here: pods of the host's network may have no cluster DNS, and the API server
// does not need it.
func (w ServiceProbe) Target(ctx context.Context) (ProbeTarget, bool) {
	route := ProbeTarget{Host: w.Host, CAs: w.Trusted()}
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
	if found, err := w.Resolve(ctx, route.Host); err == nil && len(found) > 0 {
		address = found[0]
	}
	route.Address = net.JoinHostPort(address, servicePort)
	return route, address != ""
}

// servicePort is where the API server looks for webhooks.
const servicePort = "443"
