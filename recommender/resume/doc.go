// Package resume puts the memory windows back that were open when checkpoints were
// written, once the pods and VPAs that they belong to are known.
package resume
