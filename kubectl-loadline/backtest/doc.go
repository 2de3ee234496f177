// Package backtest is kubectl loadline backtest: it replays recordings under recipes and
// prints what each of them costs and risks.
//
// Main reads the flags (Config) and the recordings: Shelf finds files, directories,
// catalogues and Prometheus servers. Package core/backtest replays and scores. A Document
// holds the scores and writes them as a table, JSON, CSV or a page of HTML with charts;
// Events tells what happens to one container, in the words of a cluster.
package backtest
