// Command quality is the regression gate of recommendations: it replays recorded
// usage under our recipes and compares what that cost with the committed result.
//
//	go run ./hack/quality                      the recordings of testdata/traces
//	go run ./hack/quality -traces DIRECTORY    those of a directory, too
//	go run ./hack/quality -update              write the results anew
//	go run ./hack/quality -traces DIRECTORY -study report
//	                                           compare recipes with the best settings of the reference
//
// The recordings of testdata/traces last for minutes, a sample a second. They are
// played sixty times as slowly, a sample a minute, so that they last for hours: the
// shapes are real, the speed is not. A result is worse if its cost or a part of it
// grew by more than 2 %, or if there are more kills than chance explains.
package main
