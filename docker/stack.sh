#!/usr/bin/env bash
# The composed stack and what this project leaves on an engine: stack.sh up | down | heal | clean
# down, heal and clean only take away; where there is no engine or nothing of ours, they say so and succeed.
set -euo pipefail
export STEP=${1:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh
# shellcheck source=docker/settings.sh
. docker/settings.sh

engine_answers() { have docker && timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

up() {
    local log=.cache/setup/up.log port
    check_numbers
    port=$(setting FLASHML_PORT 8000)
    : >"$log"
    say "starting the coordinator and ${WORKERS:-2} workers"
    if ! quietly "$log" docker compose up --detach --wait --no-build --scale "worker=${WORKERS:-2}" coordinator worker; then
        if grep -qE 'port is already allocated|address already in use' "$log"; then
            docker compose down --remove-orphans >/dev/null 2>&1 || true
            fail "port $port of this machine is in use" "choose another one: make up FLASHML_PORT=8123"
        fi
        fail "the stack did not become healthy" "look at: docker compose logs coordinator worker" "take it down: make down"
    fi
    say "ready: http://127.0.0.1:$port (make down stops it and keeps its volumes)"
}

down() {
    if ! engine_answers; then
        say "nothing to do: no engine answers"
    elif [ -z "$(docker compose ps --all --quiet 2>/dev/null)" ]; then
        say "nothing to do: the stack is not up"
    else
        docker compose down --remove-orphans
        say "stopped; the volumes (ledger, artifacts, checkpoints, work) are kept: make clean removes them"
    fi
}

heal() {
    if [ ! -x .venv/bin/python ]; then
        say "nothing to do: no chaos run was ever set up here (there is no .venv)"
    elif ! engine_answers; then
        say "nothing to do: no engine answers, so no container of a run can be alive"
    else
        .venv/bin/python -m chaos heal
    fi
}

# remove KIND LIST REMOVE: what the list command prints, one id a line.
remove() {
    local kind=$1 ids
    ids=$($2)
    [ -n "$ids" ] || return 0
    # shellcheck disable=SC2086
    $3 $ids >/dev/null && say "removed $(wc -l <<<"$ids") $kind"
}

clean_engine() {
    remove containers "docker ps --all --quiet --filter label=$LABEL" "docker rm --force --volumes"
    remove volumes "docker volume ls --quiet --filter label=$LABEL" "docker volume rm --force"
    remove networks "docker network ls --quiet --filter label=$LABEL" "docker network rm"
    remove images "our_images" "docker image rm --force"
    say "the engine's build cache is left to its owner: docker builder prune removes it"
}

our_images() {
    docker image ls --quiet --no-trunc --filter "label=$LABEL" --filter 'reference=flashruntime/*' | sort -u
    docker image ls --quiet --no-trunc --filter "label=$LABEL" --filter dangling=true | sort -u
}

clean() {
    if [ -x .venv/bin/python ] && engine_answers; then
        .venv/bin/python -m chaos heal || say "chaos heal failed; removing by label"
    fi
    if engine_answers; then clean_engine; else say "no engine answers: nothing to remove there"; fi
    if engine_answers && [ -n "$(docker ps --quiet)" ]; then
        say "containers that are not ours still run: the engine is left running (docker/engine.sh stop ends it)"
    else
        docker/engine.sh stop
    fi
    remove_env_block
    rm -rf -- .venv .cache site docker/toxiproxy/bin .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
    say "removed .venv, site, caches and our lines of .env; run directories (chaos-runs/) are kept"
}

case "${1:-}" in
    up | down | heal | clean) "$1" ;;
    *) printf 'usage: %s up|down|heal|clean\n' "$0" >&2; exit 2 ;;
esac
