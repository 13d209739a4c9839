#!/usr/bin/env bash
# Tests the Dask adapter on a real local cluster, and reads metrics as Prometheus does: a virtual environment below the target
# directory, with this package, pytest and what they read by.
# TAILCUT names the binary; without it, the debug build is made and taken.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/python
if [ -z "${TAILCUT:-}" ]; then
    cargo build --locked -p tailcut-cli
    TAILCUT=$target/debug/tailcut
fi
export TAILCUT PYTHONDONTWRITEBYTECODE=1

[ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet ./python pytest prometheus-client pyyaml
exec "$environment/bin/python" -m pytest python "$@"
