// Package rescue keeps a defect in the work on one VPA from ending the program: a
// panic of ours must not keep the others from what they need. It is logged with
// its stack and counted, so that it is not overlooked.
package rescue
