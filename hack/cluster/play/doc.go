// Package play simulates the resource usage of pods. It serves the metrics page of each node in
// place of a kubelet, and kills containers that exceed their memory limit.
//
// The annotations of a pod (see Demand) define its usage: fixed amounts, or a recording (package
// trace). Meter.Step integrates CPU from the trace every second, capped at the limit, and compares
// memory with the limit. The page therefore has exact counters, like a kubelet, instead of samples
// at the time of a scrape.
//
// kwok and the stages in package supervise decide whether pods run, are ready or are resized.
package play
