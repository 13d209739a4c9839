#!/usr/bin/env bash
# Compares the asyncio client and server with grpcio's, which pip fetches: python/bench.sh [--pairs 9] [--slice SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/python-bench
cargo build --release --locked -p tailcut-python
[ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet grpcio
python/package.sh "$target/release/libtailcut_python.so" "$target/python-bench-package"
PYTHONPATH=$target/python-bench-package exec "$environment/bin/python" crates/python/benches/asyncio_calls.py "$@"
