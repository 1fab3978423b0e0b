#!/usr/bin/env bash
# The controller's virtual environment (.venv) from the pins of constraints.txt; done already when its inputs are the same.
# `venv.sh docs` and `venv.sh test` add what builds the documentation.
set -euo pipefail
export STEP=venv
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh

STAMP=.venv/flashruntime-inputs
DOCS_STAMP=.venv/flashruntime-docs-inputs
LOG=.cache/setup/venv.log

# The first interpreter that is new enough; $PYTHON is tried first.
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$candidate" && return 0
    done
    return 1
}

can_make_venvs() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

ensure_python() {
    local python log=$LOG
    APT_OPTIONS=()
    if python=$(find_python) && can_make_venvs "$python"; then printf '%s' "$python" && return 0; fi
    if is_root && is_debian_like; then
        say "installing python3 and python3-venv"
        if quietly "$log" apt_get update && apt_install "$log" python3 python3-venv; then
            for python in "$(find_python || true)" /usr/bin/python3; do
                if [ -n "$python" ] && can_make_venvs "$python"; then printf '%s' "$python" && return 0; fi
            done
        fi
    fi
    fail "no Python 3.11 or newer that can make virtual environments was found" \
        "install one (Debian: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..."
}

install_all() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'setuptools>=77' &&
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
            --no-build-isolation --editable '.[dev]'
}

install_docs() {
    local -a wanted
    mapfile -t wanted < <(.venv/bin/python -c \
        'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")')
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "${wanted[@]}"
}

ensure_docs() {
    if [ "$(cat "$DOCS_STAMP" 2>/dev/null)" = "$1" ]; then return 0; fi
    say "installing what builds the documentation into .venv"
    quietly "$LOG" install_docs || fail "pip could not install what builds the documentation (whole log: $LOG)" \
        "check the network and pip's own configuration (pip config list), then run it again"
    printf '%s' "$1" >"$DOCS_STAMP"
}

main() {
    local inputs
    mkdir -p .cache/setup
    # pip's temporary files of an interrupted installation go with the next one.
    rm -rf .cache/setup/tmp && mkdir .cache/setup/tmp
    export TMPDIR=$PWD/.cache/setup/tmp
    inputs=$(digest pyproject.toml constraints.txt docker/venv.sh)
    ensure_venv "$inputs"
    case "${1:-}" in docs | test) ensure_docs "$inputs" ;; esac
}

ensure_venv() {
    local python inputs=$1
    if [ "$(cat "$STAMP" 2>/dev/null)" = "$inputs" ] && .venv/bin/python -c '' 2>/dev/null; then return 0; fi
    python=$(ensure_python)
    say "installing the pinned packages into .venv ($("$python" -V))"
    # Without a stamp it is what an interrupted installation left.
    [ -e "$STAMP" ] || rm -rf .venv
    rm -f -- "$STAMP"
    : >"$LOG"
    .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
    quietly "$LOG" install_all || fail "pip could not install the pinned packages (whole log: $LOG)" \
        "check the network and pip's own configuration (pip config list), then run it again"
    printf '%s' "$inputs" >"$STAMP"
    say "made .venv"
}

main "$@"
