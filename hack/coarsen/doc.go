// Command coarsen makes of recordings of hack/record what the backtester reads: a
// file with the columns of docs/backtest.md, each recording a container, at a step
// that is as long as wanted. CPU becomes the mean of each step, as a counter that is
// read once in a step shows it; memory its last value, as one scrape sees it, or its
// highest.
//
// A recording may also be told more slowly, and again and again: an hour is too short
// for what a recommender learns in days. What is made so has the recorded shape, but
// nobody ran it for that long.
package main
