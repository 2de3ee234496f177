// Package play gives simulated pods their resource usage. It stands in for the
// metrics endpoint of a kubelet: for every node it serves the page that
// metrics-server scrapes, and it kills containers that outgrow their memory
// limit.
//
// A pod says by annotations (see Demand) what it uses: fixed amounts, or a
// recording that is played (package trace). Every second Meter.Step integrates cpu
// from the trace, caps it at the container's limit, and compares memory with
// the limit. What is served are therefore exact counters, as a kubelet serves,
// and not values sampled at the moment of a scrape.
//
// The package does not decide whether pods run, are ready or are resized: kwok
// and the stages in package supervise do that.
package play
