#!/bin/sh
# Builds the Toxiproxy server that go.mod pins, checksums verified, as one static file: build.sh OUTPUT
set -eu
output=$1
cd "$(dirname "$0")"
module=github.com/Shopify/toxiproxy/v2
version=$(awk -v module="$module" '$1 == module || $2 == module { sub(/^.* v/, ""); print $1; exit }' go.mod)
mkdir -p "$(dirname "$output")"
CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w -X $module.Version=$version" -o "$output.tmp" "$module/cmd/server"
mv -f "$output.tmp" "$output"
