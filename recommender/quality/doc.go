// Package quality serves metrics that say how good the recommendation of each
// container is: how much of the target is unused, how often usage is above it,
// how old it is, and how much history is behind it. They are there for whoever
// asks for them only, because there are 15 series for each VPA and container.
//
// Workloads keeps a few numbers for each VPA, container and resource, and makes
// metrics of them when somebody reads them:
//
//   - The target is the published one, capped by the policy of the VPA: what a new
//     pod would ask for. A target counts from the first pass that sees it in the
//     status, which is the one after it was written.
//   - With each new target of a resource, the numbers of that resource begin anew;
//     that of the other goes on. A restart is a beginning too: what was before is
//     not known.
//   - Samples are those that count in the history, of all pods that the VPA
//     controls: each pod and minute the same. Kills are counted, but are no
//     samples.
//   - Now is the time of the last pass.
//
// A VPA or container that is gone, or that nothing is recommended for any more,
// has no series any more. A VPA that points to another target is another VPA.
//
// Census counts the VPAs by state, for everybody.
package quality
