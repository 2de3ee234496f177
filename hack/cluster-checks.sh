#!/usr/bin/env bash
# Lints hack/cluster and runs its unit tests, unless they passed before on the same files
# with the same linter and Go. Its libraries have other versions than those of the rest, so
# compiling them for this alone takes minutes. What passed is kept in the user's cache
# folder, beside the programs that are built from the same files.
#
#   cluster-checks.sh 'LINTER' PACKAGE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
lint=$1
shift

hash=$({
  go version
  echo "$@"
  find hack/cluster .golangci.yml hack/tools/lint hack/cluster-checks.sh -type f | LC_ALL=C sort | xargs cksum # of names, too
} | git hash-object --stdin | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/loadline
passed=$cache/checked-$hash

if [[ -e $passed ]]; then
  touch "$passed" # what was used last is pruned last
  echo "hack/cluster: lint and unit tests passed before on these files"
  exit
fi
cd hack/cluster
$lint run --config ../../.golangci.yml "$@"
go test -vet=off "$@"
mkdir -p "$cache"
touch "$passed"
# Those that were used last stay.
find "$cache" -maxdepth 1 -name 'checked-*' -printf '%T@ %p\n' | sort -rn | tail -n +11 | cut -d ' ' -f 2- | xargs -r rm -f
