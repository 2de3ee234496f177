#!/usr/bin/env bash
# Builds the images of two versions for this machine: FOLDER/after holds those of the
# working tree, FOLDER/before those of a commit, with its manifests and its chart. Their
# tags are named like the folders.
#
#   install-images.sh FOLDER COMMIT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd)
commit=$(git rev-parse "$2^{commit}")
platform=linux/$(go env GOARCH)

go build -C hack/images -o "$folder/images" .
"$folder/images" -out "$folder/after" -tag after -platforms "$platform"
rm -rf "$folder/source"
trap 'rm -rf "$folder/source"' EXIT
git clone -q --shared --no-checkout . "$folder/source"
git -C "$folder/source" checkout -q --detach "$commit"
cd "$folder/source"
"$folder/images" -out "$folder/before" -tag before -platforms "$platform"
rm -rf "$folder/before/deploy" "$folder/before/charts"
cp -r deploy charts "$folder/before"
