#!/usr/bin/env bash
# Regenerates every generated file: deep copies beside the types, the typed
# clients in pkg/generated, the custom resource definitions in deploy/crds, what
# follows from deploy/ (deploy/loadline.yaml and parts of charts/loadline), the
# pages that list flags, reasons and fields, the list of flags of the plugin,
# and docs/monitoring.md with all of deploy/monitoring.
#
# The generators are built from the versions pinned in hack/tools/go.mod. The
# network is used only to fetch modules that are not in the module cache yet.
# Files whose content does not change are not touched, and files that nothing
# generates any more are removed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Lists of files must not depend on the language of the caller.
export LC_ALL=C

module=loadline.dev/loadline
generated=$module/pkg/generated
served=("$module/apis/autoscaling/v1" "$module/apis/loadline/v1alpha1")
versions=("${served[@]}" "$module/apis/autoscaling/v1beta2")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tools builds the pinned generators into $work/bin, all at once: that is faster
# than `go tool` for one after the other.
tools() {
	mkdir -p "$work/bin"
	go build -modfile=hack/tools/go.mod -o "$work/bin/" \
		k8s.io/code-generator/cmd/{deepcopy,client,lister,informer}-gen \
		sigs.k8s.io/controller-tools/cmd/controller-gen
}

# run starts a generator in the background; settle waits for all that were
# started and shows what the failed ones said.
names=()
jobs=()
run() {
	local name=$1
	shift
	"$work/bin/$name" "$@" >"$work/$name.log" 2>&1 &
	names+=("$name")
	jobs+=("$!")
}
settle() {
	local i failed=0
	for i in "${!jobs[@]}"; do
		if ! wait "${jobs[i]}"; then
			echo "generate: ${names[i]} failed:" >&2
			cat "$work/${names[i]}.log" >&2
			failed=1
		fi
	done
	names=()
	jobs=()
	return "$failed"
}

# replace makes directory $2 equal to directory $1 without touching files that
# are equal already, so that a second run leaves every build cache warm.
replace() {
	local from=$1 to=$2 file
	mkdir -p "$to"
	(cd "$from" && find . -type f) | while read -r file; do
		if ! cmp -s "$from/$file" "$to/$file"; then
			mkdir -p "$(dirname "$to/$file")"
			cp "$from/$file" "$to/$file"
		fi
	done
	(cd "$to" && find . -type f) | while read -r file; do
		[[ -e $from/$file ]] || rm "$to/$file"
	done
	find "$to" -type d -empty -delete
}

# list prints the kustomization of the custom resource definitions.
list() {
	echo 'apiVersion: kustomize.config.k8s.io/v1beta1'
	echo 'kind: Kustomization'
	echo 'resources:'
	(cd "$work/crds" && printf '  - %s\n' *_*.yaml)
}

echo "generate: building the generators (a minute the first time)"
tools

echo "generate: deep copies, custom resource definitions, typed clients"
run deepcopy-gen --go-header-file /dev/null --output-file zz_generated.deepcopy.go "${versions[@]}"
run controller-gen crd:allowDangerousTypes=true paths=./apis/autoscaling/v1 paths=./apis/autoscaling/v1beta2 \
	paths=./apis/loadline/v1alpha1 output:crd:dir="$work/crds"
settle
list >"$work/crds/kustomization.yaml"

out=$work/generated
run client-gen --go-header-file /dev/null --clientset-name versioned --input-base "$module/apis" \
	--input autoscaling/v1 --input loadline/v1alpha1 \
	--output-dir "$out/clientset" --output-pkg "$generated/clientset"
settle
run lister-gen --go-header-file /dev/null \
	--output-dir "$out/listers" --output-pkg "$generated/listers" "${served[@]}"
run informer-gen --go-header-file /dev/null \
	--versioned-clientset-package "$generated/clientset/versioned" --listers-package "$generated/listers" \
	--output-dir "$out/informers" --output-pkg "$generated/informers" "${served[@]}"
settle

replace "$work/crds" deploy/crds
replace "$out" pkg/generated
go run -C hack/manifests . -root ../..

# flags prints the documentation of the command lines, as the programs give it.
flags() {
	echo '# Flags'
	echo
	echo 'For those who run the programs. Generated: this is what each prints with `--help`. `_` may be written for'
	echo '`-`. Upstream flags keep their names, meanings and defaults; those that only'
	echo 'Loadline has are listed in [compatibility.md](compatibility.md).'
	local program
	for program in recommender updater admission-controller; do
		printf '\n## %s\n\n```\n' "$program"
		go run "./cmd/$program" --help
		echo '```'
	done
}
flags >"$work/flags.md"
cmp -s "$work/flags.md" docs/flags.md || cp "$work/flags.md" docs/flags.md

# known prints a line for each flag in that page: program, name, type, and whether the reference
# VPA has it, too. The plugin compares installations with that.
known() {
	local program name kind origin
	awk '/^## / { program = $2 } /^  (-[a-z], )?--/ { sub(/^  (-[a-z], )?--/, ""); print program, $1, ($2 == "" || $2 ~ /^\(/ ? "bool" : $2) }' "$work/flags.md" |
		while read -r program name kind; do
			origin=own
			if grep -q "^$name[[:blank:]]" "$program/testdata/flags.golden" && ! grep -q "^| $program | .*\`--$name\`" docs/compatibility.md; then origin=reference; fi
			echo "$program $name $kind $origin"
		done
}
known >"$work/known-flags.txt"
cmp -s "$work/known-flags.txt" kubectl-loadline/programs/known-flags.txt || cp "$work/known-flags.txt" kubectl-loadline/programs/known-flags.txt

go run ./hack/reasons
go run ./hack/api
go run ./hack/monitoring
