// Command demo shows the main job of Loadline on a local control plane: pods
// that ask for too much or too little are put right while they run.
//
// Three workloads play recorded usage: one asks for far more than it needs, one
// for too little memory, so that it is OOM-killed, one has a spiky CPU. The
// demo shows what the programs do, as a live table on a terminal and as plain
// lines elsewhere, and ends with what was gained. It checks its own claims and
// fails when a pod was replaced or restarted that could have been resized, or
// when a request ends outside the bounds of its recommendation.
package main
