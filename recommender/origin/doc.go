// Package origin chooses where usage and history come from: the metrics API, the
// external metrics API or Prometheus, as the flags say.
package origin
