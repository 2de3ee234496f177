package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"

	"loadline.dev/loadline/admission-controller/server"
)

// reach finds the way that the API server takes to the webhook.
type reach struct {
	config  Config
	resolve func(ctx context.Context, host string) ([]string, error) // net.Resolver.LookupHost
	trusted func() []byte
}

// route returns the way through the Service, or by URL. It is false where
// somebody else registers the webhook, and where the Service cannot be found from
// here: pods of the host's network may have no cluster DNS, and the API server
// does not need it.
func (r reach) route(ctx context.Context) (server.Route, bool) {
	route := server.Route{Host: r.config.host(), CAs: r.trusted()}
	if !r.config.Register {
		return route, false
	}
	if r.config.ByURL {
		if target, err := url.Parse(r.config.url()); err == nil {
			port := target.Port()
			if port == "" {
				port = servicePort
			}
			route.Address = net.JoinHostPort(target.Hostname(), port)
			return route, true
		}
	}
	address := os.Getenv(strings.ToUpper(strings.ReplaceAll(r.config.Service, "-", "_")) + "_SERVICE_HOST")
	if found, err := r.resolve(ctx, route.Host); err == nil && len(found) > 0 {
		address = found[0]
	}
	route.Address = net.JoinHostPort(address, servicePort)
	return route, address != ""
}

// servicePort is where the API server looks for webhooks.
const servicePort = "443"
