package e2e

import (
	"fmt"
)

// unobservable are permissions that the audit log cannot show, with the reason why they are needed.
var unobservable = map[string]string{
	"vpa-updater: patch events": "an event that repeats is counted up by a patch; the promises make none repeat for sure",
}

// checkPermissions evaluates the audit log. The exit code is 1 if a request was forbidden, or if
// all parallel tests ran without using a permission of deploy/base.
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
		if unobservable[line] == "" && (process == "" || process == processTogether) {
			fmt.Println("superfluous permission:", line)
			code = 1
		}
	}
	fmt.Printf("permissions: %d requests, %d forbidden, %d of %d permissions used\n", usage.Requests, len(usage.Forbidden), usage.Granted-len(usage.Unused), usage.Granted)
	return code
}
