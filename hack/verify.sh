#!/usr/bin/env bash
# Regenerates everything and fails when a generated file was not up to date, or
# is up to date but not committed. The regenerated files stay, ready to be
# committed.
set -euo pipefail
cd "$(dirname "$0")/.."

# picture lists the generated files with their checksums.
picture() {
	find apis -name 'zz_generated.*' -type f -exec cksum {} + | sort -k 3
	find pkg/generated deploy/crds deploy/loadline.yaml charts/loadline/files docs/flags.md kubectl-loadline/programs/known-flags.txt docs/reasons.md docs/api.md docs/monitoring.md deploy/monitoring -type f -exec cksum {} + 2>/dev/null | sort -k 3
}

before=$(picture)
hack/generate.sh
after=$(picture)

if [[ $before != "$after" ]]; then
	echo "verify: these generated files were not up to date and are now; commit them:" >&2
	diff <(echo "$before") <(echo "$after") | sed -n 's/^[<>] [0-9]* [0-9]* /  /p' | sort -u >&2
	exit 1
fi
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
	uncommitted=$(git status --porcelain -- 'apis/**/zz_generated.*' pkg/generated deploy/crds deploy/loadline.yaml charts/loadline/files docs/flags.md kubectl-loadline/programs/known-flags.txt docs/reasons.md docs/api.md docs/monitoring.md deploy/monitoring)
	if [[ -n $uncommitted ]]; then
		echo "verify: these generated files are up to date, but not committed:" >&2
		echo "$uncommitted" >&2
		exit 1
	fi
fi
echo "verify: generated files are up to date"
