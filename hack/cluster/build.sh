#!/usr/bin/env bash
# Builds the local control plane outside the tree and prints the program's path
# as the last line of its output. What it says on the way goes to standard error.
#
# The result is kept in the user's cache folder under the hash of everything it
# is built from, so it is built once per version of this folder. A build from
# nothing compiles 2,800 packages, which takes two cores 8 to 13 minutes.
#
#   build.sh [--real-node]
#
# With --real-node it builds what `up --real-node` needs as well, into the same
# folder: the kubelet, and the program of the image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
case $* in
'') programs=(loadline-cluster) ;;
--real-node) programs=(loadline-cluster loadline-kubelet loadline-burn) ;;
*)
  echo "build.sh: want --real-node or nothing, got $*" >&2
  exit 2
  ;;
esac
# Where the source of each program is.
declare -A source=([loadline-cluster]=. [loadline-kubelet]=./kubelet [loadline-burn]=./burn)

kept=3         # versions that stay in the cache
every=15       # seconds between two lines of progress
kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)

say() { echo "loadline-cluster: $*" >&2; }

sources() { find . -type f \( -name '*.go' ! -name '*_test.go' -o -path './supervise/stages/*.yaml' -o -path './realnode/files/*' -o -name go.mod -o -name go.sum -o -name build.sh \) | LC_ALL=C sort; }
hash=$(sources | xargs cat | git hash-object --stdin | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/loadline
folder=$cache/cluster-$hash
program=$folder/loadline-cluster

finish() {
  touch "$folder" # what was used last is pruned last
  ls -1dt "$cache"/cluster-*/ | tail -n +$((kept + 1)) | xargs -r rm -rf
  echo "$program"
}

# missing lists the programs that are not there.
missing() { for name in "${programs[@]}"; do [[ -x $folder/$name ]] || echo "$name"; done; }

if [[ -z $(missing) ]]; then
  finish
  exit
fi
mkdir -p "$cache"
exec 9>"$cache/build.lock"
if ! flock -n 9; then
  say "another build is running; waiting for it"
  flock 9
fi
mapfile -t programs < <(missing)
if ((${#programs[@]} == 0)); then
  finish
  exit
fi
packages=()
for name in "${programs[@]}"; do packages+=("${source[$name]}"); done

rm -rf "$cache"/build.?????? # of builds that were killed
began=$SECONDS
elapsed() { printf '%d:%02d' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)); }
work=$(mktemp -d "$cache/build.XXXXXX")
child=
trap '[[ -z $child ]] || kill "$child" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Runs a command in the background and says every few seconds how far it is.
watch() {
  local progress=$1 next=$((SECONDS + every))
  shift
  "$@" >"$work/out" 2>"$work/log" 9>&- &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS >= next)); then
      say "$(elapsed)  $("$progress")"
      next=$((SECONDS + every))
    fi
  done
  if ! wait "$child"; then
    child=
    say "failed: $*"
    grep -v '^go: downloading' "$work/log" | tail -n 30 >&2
    exit 1
  fi
  child=
}

downloads() { echo "$(grep -c '^go: downloading' "$work/log" || true) modules downloaded so far"; }
say "building, once for this version (kept in $folder)"
say "$(elapsed)  finding out what there is to compile"
watch downloads env CGO_ENABLED=0 go list -mod=readonly -deps "${packages[@]}"
total=$(wc -l <"$work/out")

# go build -v names a package when its compilation begins; what the build cache
# holds is not named.
compiled() { echo "$(grep -cv '^go: ' "$work/log" || true) packages compiled; a first build compiles all $total"; }
client=k8s.io/client-go/pkg/version server=k8s.io/component-base/version
flags="-s -w"
for package in "$server" "$client"; do
  IFS=. read -r major minor _ <<<"${kubernetes#v}"
  flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor"
done
mkdir -p "$folder"
for name in "${programs[@]}"; do
  watch compiled env CGO_ENABLED=0 go build -v -mod=readonly -trimpath -buildvcs=false -ldflags "$flags" -o "$work/$name" "${source[$name]}"
  mv "$work/$name" "$folder/$name"
  say "$(elapsed)  $name done: $(compiled), $(($(stat -c %s "$folder/$name") >> 20)) MiB"
done
finish
