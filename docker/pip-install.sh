#!/bin/sh
# Inside the image build: pip with the project's pins, the builder's CA bundle and index where they are given.
set -eu
if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi
if [ -z "${PIP_INDEX_URL:-}" ]; then unset PIP_INDEX_URL; fi
exec pip install --quiet --constraint constraints.txt "$@"
