// Package view turns what the caches hold into the plain values that
// disruption.Plan works on.
//
// Reader.Read takes a Snapshot: the VPAs that change running pods, each with the
// pods it controls, what these have, and what policy.Fit would give them. The
// Snapshot also keeps the objects themselves for whoever carries the plan out.
// Reading does the same for one VPA and its pods alone.
//
// CapacityReader says what nodes and quotas have left, Growth whether nodes can be added,
// and StaticCPUNodes on which nodes exclusive CPUs cannot be resized.
//
// It calls no API but what the target resolver must ask for custom workloads,
// and decides nothing. A pod or VPA that makes the code panic is reported and
// left out; the others are not affected.
package view
