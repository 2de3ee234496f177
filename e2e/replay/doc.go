// Package replay lets a recording be lived through twice: by the recommender, as a
// process on the local control plane, and by the backtester.
//
// Recording is what a container used, placed at some time. API stands before the API
// server and plays recordings as the metrics API, one recorded minute for each pass
// of the recommender, however fast these follow each other. Past is a Prometheus
// that has recordings as history. Backtest runs `kubectl loadline backtest` on the
// same recordings, and Story holds what it says happened.
//
// It starts no recommender and compares nothing; the tests do.
package replay
