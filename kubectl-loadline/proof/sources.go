package proof

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"loadline.dev/loadline/pkg/core/backtest/tape"
)

// sources returns the files that arguments name: a file stands for itself, a
// directory for what ends in .csv or .csv.gz in it, in the order of names.
func sources(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("read recordings: %w", err)
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, fmt.Errorf("read recordings: %w", err)
		}
		found := len(files)
		for _, e := range entries { // by name
			if n := e.Name(); !e.IsDir() && (strings.HasSuffix(n, ".csv") && n != catalogue || strings.HasSuffix(n, ".csv.gz")) {
				files = append(files, filepath.Join(arg, n))
			}
		}
		if len(files) == found {
			return nil, fmt.Errorf("read recordings: %s: has no file that ends in .csv or .csv.gz", arg)
		}
	}
	if !slices.IsSorted(files) {
		slices.Sort(files)
	}
	return slices.Compact(files), nil
}

// catalogue lists the recordings of a directory, and is none itself.
const catalogue = "series.csv"

// within tells whether a container belongs to a part. Recipes are tuned on one
// half and reported on the other.
func within(part string, r *tape.Recording) bool {
	if part == "all" {
		return true
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%s", r.Dataset, r.Workload)
	return (h.Sum32()&(1<<7) != 0) == (part == "report")
}
