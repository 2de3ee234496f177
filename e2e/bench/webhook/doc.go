// Package webhook measures the webhook of the admission controller under many VPAs.
//
// It fills a local control plane with Deployments and VPAs, runs the program on
// one processor, with all else on the others, and sends it reviews of new pods at
// a steady rate: each of a pod as the API server has it, over HTTP/1.1 as the API
// server does. `make load` runs it and puts the table into docs/scale.md. It
// fails when reviews take longer than they may.
//
// The reviews do not go through the API server, which could not create so many
// pods on a small machine: what is measured is the webhook, with TLS, and the
// loopback network. Requests that do nothing show what of that is not the webhook.
package webhook
