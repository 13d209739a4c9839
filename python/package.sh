#!/usr/bin/env bash
# Puts the package `tailcut` together, without a wheel: package.sh EXTENSION DIRECTORY. The directory is for PYTHONPATH.
set -euo pipefail
extension=$1
package=$2/tailcut
mkdir -p "$package"
cp "$(dirname "$0")"/../crates/python/python/tailcut/* "$package/"
cp "$extension" "$package/_core.abi3.so"
