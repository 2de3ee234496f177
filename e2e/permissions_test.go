package e2e

import (
	"fmt"
)

// unseen are permissions that the audit log cannot show, and why they are
// needed all the same.
var unseen = map[string]string{
	"vpa-updater: patch events": "an event that repeats is counted up by a patch; the promises make none repeat for sure",
}

// checkPermissions reads the audit log of everything the programs asked the API
// server and returns the exit code: 1 if a request was forbidden or, where all promises were looked
// at that run beside each other, a permission of deploy/base was never used.
func checkPermissions() int {
	usage, err := cluster.Permissions()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	code := 0
	for _, line := range usage.Forbidden {
		fmt.Println("forbidden:", line)
		code = 1
	}
	for _, line := range usage.Unused {
		if unseen[line] == "" && (process == "" || process == processTogether) {
			fmt.Println("superfluous permission:", line)
			code = 1
		}
	}
	fmt.Printf("permissions: %d requests, %d forbidden, %d of %d permissions used\n", usage.Requests, len(usage.Forbidden), usage.Granted-len(usage.Unused), usage.Granted)
	return code
}
