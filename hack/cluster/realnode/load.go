package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"loadline.dev/loadline/hack/cluster/deb"
	"loadline.dev/loadline/hack/cluster/instance"
)

// Load imports an archive of `docker save` or `make images` into a running node.
func Load(node instance.Process, runtime deb.Unpacked, archive string) error {
	ctr, err := runtime.Program("ctr")
	if err != nil {
		return err
	}
	if !node.Alive() {
		return errors.New("the real node does not run")
	}
	// The node's /run is reachable through its first process.
	inside := filepath.Join("/proc", fmt.Sprint(node.PID), "root", socket)
	if err := importCommand(ctr, inside, archive).Run(); err != nil {
		return fmt.Errorf("load the images of %s: %w", archive, err)
	}
	return nil
}

func importCommand(ctr, at, archive string) *exec.Cmd {
	cmd := exec.Command(ctr, "--address="+at, "--namespace=k8s.io", "images", "import", "--snapshotter=native", archive)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}
