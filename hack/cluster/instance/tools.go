package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DirVariable names the environment variable that says which instance kubectl
// talks to.
const DirVariable = "LOADLINE_CLUSTER_DIR"

// AuditPolicyFile is the audit policy of the API server in the folder.
const AuditPolicyFile = "audit-policy.yaml"

// auditPolicy logs each request once, with its objects only if a member of AuditObjectsOf wrote them.
func (o *Options) auditPolicy() string {
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
	if o.AuditObjectsOf != "" {
		policy += fmt.Sprintf("- {level: RequestResponse, userGroups: [%q], verbs: [create, update, patch]}\n", o.AuditObjectsOf)
	}
	return policy + "- {level: Metadata}\n"
}

// WriteTools writes what makes an instance easy to use from a shell: `env`, to
// be sourced, and bin/kubectl; and the API server's audit policy.
func (f Folder) WriteTools(state State) error {
	if err := os.MkdirAll(f.Path("bin"), 0o755); err != nil {
		return fmt.Errorf("write tools: %w", err)
	}
	env := fmt.Sprintf("export KUBECONFIG=%s\nexport %s=%s\nexport PATH=%s:\"$PATH\"\n",
		Quote(f.Kubeconfig()), DirVariable, Quote(string(f)), Quote(f.Path("bin")))
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %s kubectl --dir %s \"$@\"\n", Quote(state.Program), Quote(string(f)))
	if err := os.WriteFile(f.Path("env"), []byte(env), 0o644); err != nil {
		return fmt.Errorf("write tools: %w", err)
	}
	if err := os.WriteFile(f.Path("bin", "kubectl"), []byte(kubectl), 0o755); err != nil {
		return fmt.Errorf("write tools: %w", err)
	}
	if err := os.WriteFile(f.Path(AuditPolicyFile), []byte(state.Options.auditPolicy()), 0o644); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	return nil
}

// Quote makes one shell word of any text.
func Quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// KubectlTarget reads --dir, when it is the first argument after kubectl's
// name, or else the environment, and points kubectl at that instance. It
// returns the arguments without --dir. With neither, kubectl works as always.
func KubectlTarget(args []string) ([]string, error) {
	dir := os.Getenv(DirVariable)
	if len(args) > 1 {
		if value, ok := strings.CutPrefix(args[1], "--dir="); ok {
			dir, args = value, append(args[:1:1], args[2:]...)
		} else if args[1] == "--dir" && len(args) > 2 {
			dir, args = args[2], append(args[:1:1], args[3:]...)
		}
	}
	if dir == "" {
		return args, nil
	}
	folder, err := Absolute(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(folder.Kubeconfig()); err != nil {
		return nil, fmt.Errorf("no cluster in %s; start one with: loadline-cluster up --dir %s", dir, dir)
	}
	// Ports come back with other instances, so what kubectl remembers about an
	// address must go with the instance.
	for name, value := range map[string]string{"KUBECONFIG": folder.Kubeconfig(), "KUBECACHEDIR": folder.Path("kubectl-cache")} {
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return args, nil
}

// Absolute returns the folder at a path, wherever the caller goes later.
func Absolute(dir string) (Folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return Folder(path), nil
}
