// Package tape holds what containers used, as it was recorded.
//
// A Recording is one container: instants, what it used of each kind from each
// instant on, and what it requested. Holds says how long each sample stands for;
// a gap in the recording stands for nothing. Classify tells what sort of load it
// is, so that results can be told apart by it.
//
// It reads no files and knows nothing of recommendations.
package tape
