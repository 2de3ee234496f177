// Package load keeps how much a container uses as two histograms that forget at
// different speeds, in little room.
//
// Load tells shares of the load or of the time, and the highest of the last hour;
// Models is an ensemble of models that compete for the cheapest limit. Both are of one
// kind, CPU or memory; their shapes, which containers share, hold the settings.
//
// Each is filled by samples as they come, can be merged with another, and has a form on
// disk that gives back exactly what it was.
package load
