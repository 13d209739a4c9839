#!/usr/bin/env bash
# Tests the package tailcut; the Dask adapter on a real local cluster; metrics, read as Prometheus does; measure against gRPC's own
# server; and the notebook: a virtual environment below the target directory, with the adapter, pytest and what they read by.
# TAILCUT names the binary, and TAILCUT_PYTHON the extension; without them, the debug builds are made and taken.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/python
if [ -z "${TAILCUT:-}" ]; then
    cargo build --locked -p tailcut-cli
    TAILCUT=$target/debug/tailcut
fi
if [ -z "${TAILCUT_PYTHON:-}" ]; then
    cargo build --locked -p tailcut-python
    TAILCUT_PYTHON=$target/debug/libtailcut_python.so
fi
export TAILCUT PYTHONDONTWRITEBYTECODE=1

[ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet ./python pytest prometheus-client pyyaml grpcio pandas matplotlib
python/package.sh "$TAILCUT_PYTHON" "$target/python-package"
export PYTHONPATH=$target/python-package
exec "$environment/bin/python" -m pytest -c python/pyproject.toml python crates/python/tests "$@"
