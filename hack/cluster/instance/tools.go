package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DirVariable is the environment variable with the instance folder for kubectl.
const DirVariable = "LOADLINE_CLUSTER_DIR"

// AuditPolicyFile is the audit policy of the API server.
const AuditPolicyFile = "audit-policy.yaml"

// auditPolicy logs each request once, with objects only if a member of AuditObjectsOf wrote them.
func (o *Options) auditPolicy() string {
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
	if o.AuditObjectsOf != "" {
		policy += fmt.Sprintf("- {level: RequestResponse, userGroups: [%q], verbs: [create, update, patch]}\n", o.AuditObjectsOf)
	}
	return policy + "- {level: Metadata}\n"
}

// WriteTools writes `env` and bin/kubectl for shells, and the audit policy of the API server.
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

// Quote quotes a text for a shell.
func Quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// KubectlTarget points kubectl at the instance in --dir, if that is its first argument, or in the
// environment. It returns the arguments without --dir. With neither, kubectl works as usual.
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
	// Other instances reuse ports, so each has its own kubectl cache.
	for name, value := range map[string]string{"KUBECONFIG": folder.Kubeconfig(), "KUBECACHEDIR": folder.Path("kubectl-cache")} {
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return args, nil
}

// Absolute returns the folder at a path, independent of the working directory.
func Absolute(dir string) (Folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return Folder(path), nil
}
