#!/usr/bin/env bash
# Makes this checkout ready: setup.sh venv | docs | stack | test | bench
#   venv   the controller's virtual environment
#   docs   venv and what builds the documentation
#   stack  venv, engine, base image, runtime, helper and Toxiproxy images, .env for compose
#   test   docs, stack, the image that holds the tests, one with a browser and one with a queue in Redis
#   bench  stack and the image with the frameworks that the benchmarks compare with
# Everything is reused when its inputs did not change; independent steps run side by side.
set -euo pipefail
export FLASHML_SETUP_T0="${FLASHML_SETUP_T0:-$EPOCHSECONDS}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=docker/lib.sh
. docker/lib.sh
# shellcheck source=docker/settings.sh
. docker/settings.sh

TOXIPROXY_PUBLISHED=ghcr.io/shopify/toxiproxy:2.12.0
CACHE=.cache/setup
declare -A STEPS=()

# start NAME COMMAND...: in a process group of its own, so that ending it ends all that it started.
start() {
    local name=$1
    shift
    set -m
    run_step "$name" "$@" </dev/null &
    STEPS[$!]=$name
    set +m
}

# The set-up's end, even by SIGKILL, is its steps' end.
run_step() {
    local group=$BASHPID watcher
    export STEP=$1
    shift
    watch "$group" &
    watcher=$!
    # shellcheck disable=SC2064
    trap "kill $watcher 2>/dev/null || true" EXIT
    "$@"
}

watch() {
    local ticks=0
    exec 9>&- 1>/dev/null
    while kill -0 "$$" 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        [ $((ticks % 20)) -ne 0 ] || say "... under way"
    done
    kill -TERM -- "-$1"
}

end_steps() {
    local pid
    for pid in "${!STEPS[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
    wait || true
}

interrupted() {
    trap - INT TERM
    say "interrupted: ending what was under way; the next call goes on from here"
    end_steps
    exit 130
}

# join: until every step has ended; the first one that fails ends the others.
join() {
    local pid rc
    while [ "${#STEPS[@]}" -gt 0 ]; do
        rc=0
        wait -n -p pid "${!STEPS[@]}" || rc=$?
        local name=${STEPS[$pid]}
        unset "STEPS[$pid]"
        if [ "$rc" -ne 0 ]; then
            end_steps
            fail "the step '$name' failed (above is why)"
        fi
    done
}

one_at_a_time() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/lock"
    flock -n 9 && return 0
    say "another set-up of this checkout is running: waiting for it"
    flock -w 1800 9 || fail "another set-up of this checkout has not ended within 1800 s" "end it, then run this again"
}

build() {
    local tag=$1 started=$EPOCHSECONDS before
    shift
    before=$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null || true)
    quietly "$CACHE/build-${tag//[\/:]/-}.log" docker buildx build --builder "$(docker context show)" --load --progress plain \
        --label "$LABEL" --tag "$tag" "$@" ||
        fail "building $tag failed (whole log: $CACHE/build-${tag//[\/:]/-}.log)" \
            "if a download failed: check the network, PIP_INDEX_URL, and CA_BUNDLE=$CA_BUNDLE (a proxy's CA must be in it)"
    [ "$before" != "$(docker image inspect --format '{{.Id}}' "$tag")" ] || return 0
    say "built $tag in $((EPOCHSECONDS - started)) s"
    # The image that this one replaces, unless it has another name or a container.
    if [ "$(docker image inspect --format '{{len .RepoTags}}' "${before:-none}" 2>/dev/null)" = 0 ]; then
        docker image rm "$before" >/dev/null 2>&1 || true
    fi
}

build_from_base() {
    local tag=$1
    shift
    build "$tag" --build-arg "BASE_IMAGE=$BASE_IMAGE" --build-arg "TORCH_INDEX_URL=$TORCH_INDEX_URL" \
        --build-arg "PIP_INDEX_URL=$PIP_INDEX_URL" --secret "id=ca_bundle,src=$CA_BUNDLE" "$@"
}

runtime_image() {
    build_from_base flashruntime/runtime:local --file docker/runtime.Dockerfile --target runtime .
    [ "$1" != test ] || build_from_base flashruntime/test:local --file docker/runtime.Dockerfile --target test .
}

bench_image() {
    build flashruntime/bench:local --build-arg "PIP_INDEX_URL=$PIP_INDEX_URL" --secret "id=ca_bundle,src=$CA_BUNDLE" \
        --file docker/bench.Dockerfile .
}

browser_image() { build_from_base flashruntime/browser:local --file docker/browser.Dockerfile docker; }

queue_image() { build_from_base flashruntime/redis-queue:local --file tests/targets/redis_queue/Dockerfile tests/targets/redis_queue; }

helper_image() { build_from_base flashruntime/helper:local --file docker/helper.Dockerfile .; }

go_is_new_enough() {
    have go && [ "$(printf '%s\n' 1.23 "$(go env GOVERSION | sed 's/^go//')" | sort -V | head -n 1)" = 1.23 ]
}

toxiproxy_binary() {
    local inputs binary=docker/toxiproxy/bin/toxiproxy
    inputs=$(digest docker/toxiproxy/go.mod docker/toxiproxy/go.sum docker/toxiproxy/build.sh)
    [ -x "$binary" ] && [ "$(cat "$binary.inputs" 2>/dev/null)" = "$inputs" ] && return 0
    say "building Toxiproxy from its pinned Go module"
    quietly "$CACHE/toxiproxy.log" sh docker/toxiproxy/build.sh "$PWD/$binary" || return 1
    printf '%s' "$inputs" >"$binary.inputs"
    say "built Toxiproxy"
}

has_toxiproxy() {
    [ "$(timeout 10 docker image inspect --format '{{index .Config.Labels "dev.flashruntime.inputs"}}' \
        flashruntime/toxiproxy:local 2>/dev/null)" = "$(toxiproxy_inputs)" ]
}

toxiproxy_inputs() { digest docker/toxiproxy/*.* docker/toxiproxy/Dockerfile <(printf '%s' "$TOXIPROXY_IMAGE"); }

# The binary needs no engine, so it is built while the engine comes up; where an engine is there already,
# the published image is tried first.
toxiproxy_prepare() {
    if has_toxiproxy || [ -n "$TOXIPROXY_IMAGE" ] || docker image inspect "$TOXIPROXY_PUBLISHED" >/dev/null 2>&1; then return 0; fi
    if timeout 5 docker version >/dev/null 2>&1 && pull_toxiproxy "$TOXIPROXY_PUBLISHED"; then return 0; fi
    if go_is_new_enough; then toxiproxy_binary || say "the host's Go could not build it ($CACHE/toxiproxy.log)"; fi
}

pull_toxiproxy() { timeout 60 docker pull --quiet "$1" >/dev/null 2>&1; }

toxiproxy_image() {
    local tag=flashruntime/toxiproxy:local
    local -a common=(--label "dev.flashruntime.inputs=$(toxiproxy_inputs)" docker/toxiproxy)
    if has_toxiproxy; then
        return 0
    elif [ -n "$TOXIPROXY_IMAGE" ]; then
        build "$tag" --target published --build-arg "TOXIPROXY_IMAGE=$TOXIPROXY_IMAGE" "${common[@]}"
    elif docker image inspect "$TOXIPROXY_PUBLISHED" >/dev/null 2>&1; then
        build "$tag" --target published --build-arg "TOXIPROXY_IMAGE=$TOXIPROXY_PUBLISHED" "${common[@]}"
    elif [ -x docker/toxiproxy/bin/toxiproxy ]; then
        build "$tag" --target prebuilt "${common[@]}"
    elif pull_toxiproxy "$TOXIPROXY_PUBLISHED"; then
        build "$tag" --target published --build-arg "TOXIPROXY_IMAGE=$TOXIPROXY_PUBLISHED" "${common[@]}"
    else
        say "building Toxiproxy with the distribution's Go"
        build_from_base "$tag" --target compiled --build-arg "GOPROXY=${GOPROXY:-}" "${common[@]}"
    fi
}

# The composed stack and the tests run without it, so this one failure is only reported; the experiments say so and stop.
toxiproxy_image_or_report() {
    (toxiproxy_image) || say "no Toxiproxy: the stack runs, the chaos experiments cannot (above is why)"
}

engine_and_base() {
    docker/engine.sh ensure
    BASE_IMAGE=$(docker/base.sh)
    printf '%s' "$BASE_IMAGE" >"$CACHE/base"
}

main() {
    local goal=${1:-stack}
    case "$goal" in venv | docs | stack | test | bench) ;; *) printf 'usage: %s [venv|docs|stack|test|bench]\n' "$0" >&2; exit 2 ;; esac
    [ "$goal" != stack ] || check_numbers
    one_at_a_time
    trap interrupted INT TERM
    load_settings
    start venv docker/venv.sh "$goal"
    if [ "$goal" != venv ] && [ "$goal" != docs ]; then
        start toxiproxy toxiproxy_prepare
        start engine engine_and_base
        join
        BASE_IMAGE=$(cat "$CACHE/base")
        write_env
        start runtime runtime_image "$goal"
        start helper helper_image
        [ "$goal" != test ] || start browser browser_image
        [ "$goal" != test ] || start queue queue_image
        start toxiproxy toxiproxy_image_or_report
    fi
    join
    if [ "$goal" = bench ]; then
        start bench bench_image
        join
    fi
    say "ready"
}

main "$@"
