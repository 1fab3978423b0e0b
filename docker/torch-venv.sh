#!/bin/sh
# Inside the image build: makes a virtual environment at $1 in which `import torch` works, downloading torch only
# where the base lacks it: from TORCH_INDEX_URL when that is set, else the distribution's CPU build.
set -eu
venv=$1
bundle=/run/secrets/ca_bundle
[ -s "$bundle" ] || bundle=""

has_torch() { "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null; }

apt() {
    apt-get ${bundle:+-o "Acquire::https::CaInfo=$bundle"} -qq -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

python=""
for candidate in python3 /usr/bin/python3; do
    if has_torch "$candidate"; then python=$candidate && break; fi
done
if [ -z "$python" ] && [ -n "${TORCH_INDEX_URL:-}" ]; then
    python3 -m venv "$venv"
    if [ -n "$bundle" ]; then export PIP_CERT="$bundle"; fi
    if [ -z "${PIP_INDEX_URL:-}" ]; then unset PIP_INDEX_URL; fi
    numpy=$(grep '^numpy==' constraints.txt)
    "$venv/bin/pip" install --quiet "$numpy"
    "$venv/bin/pip" install --quiet --index-url "$TORCH_INDEX_URL" 'torch>=2.6'
elif [ -z "$python" ]; then
    apt update
    apt install -y --no-install-recommends python3 python3-venv python3-torch libopenblas0-openmp
    rm -rf /var/lib/apt/lists/*
    python=/usr/bin/python3
fi
[ -x "$venv/bin/python" ] || "$python" -m venv --system-site-packages "$venv"
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "the base image's $python is older than Python 3.11: name another BASE_IMAGE" >&2
    exit 1
}
has_torch "$venv/bin/python"
