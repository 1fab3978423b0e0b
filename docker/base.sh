#!/usr/bin/env bash
# Prints the base image that builds start from: BASE_IMAGE, else python:3.13-slim where it is here or can be pulled,
# else an equivalent made from Debian packages, which is kept as flashruntime/base:trixie.
set -euo pipefail
export STEP=base
# shellcheck source=docker/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PUBLISHED=python:3.13-slim
LOCAL=flashruntime/base:trixie
PACKAGES=python3,python3-venv,python3-pip,python3-setuptools,python3-torch,libopenblas0-openmp,ca-certificates
PULL_S="${FLASHML_PULL_TIMEOUT_S:-120}"
LOG="$STATE_DIR/base.log"
PULL_ERROR="$STATE_DIR/pull.log"

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# A local base of other packages than these is built anew.
inputs() { printf '%s' "$PACKAGES" | sha256sum | cut -c1-16; }

has_local() {
    [ "$(docker image inspect --format '{{index .Config.Labels "dev.flashruntime.inputs"}}' "$LOCAL" 2>/dev/null)" = "$(inputs)" ]
}

pull() {
    say "pulling $1 (at most $PULL_S s)"
    timeout "$PULL_S" docker pull --quiet "$1" >/dev/null 2>"$PULL_ERROR" </dev/null
}

pull_error() { tail -n 1 "$PULL_ERROR" 2>/dev/null | cut -c1-200; }

host_proxies() {
    apt-config dump | sed -nE 's/^(Acquire::https?::Proxy .*;)$/--aptopt=\1/p'
}

require_bootstrap() {
    local remedy="name a Debian or python image that this engine can reach: make BASE_IMAGE=your.registry/python:3.13-slim ..."
    is_debian_like || fail "$PUBLISHED cannot be pulled ($(pull_error)), and only Debian can build a substitute" "$remedy"
    [ -n "$(debian_mirror)" ] ||
        fail "$PUBLISHED cannot be pulled ($(pull_error)), and apt's configuration names no Debian mirror" "$remedy"
    have mmdebstrap && return 0
    is_root || fail "$PUBLISHED cannot be pulled, and mmdebstrap, which builds a substitute, is not installed" \
        "install it (apt-get install mmdebstrap), or run as root" "$remedy"
    say "installing mmdebstrap"
    mapfile -t APT_OPTIONS < <(apt_options "$(private_dir apt-base)")
    if ! { quietly "$LOG" apt_get "${APT_OPTIONS[@]}" update && apt_install "$LOG" mmdebstrap; }; then
        fail "apt-get could not install mmdebstrap (see $LOG)" "$remedy"
    fi
    rm -rf -- "$STATE_DIR/apt-base"
}

# Mounts that mmdebstrap makes live in a mount namespace of its own, so that killing it leaves none behind.
bootstrap() {
    local -a isolate=() proxies=()
    if is_root && unshare --mount true 2>/dev/null; then isolate=(unshare --mount --propagation private); fi
    mapfile -t proxies < <(host_proxies)
    TMPDIR=$1 "${isolate[@]}" mmdebstrap --variant=minbase --include="$PACKAGES" --components=main --format=tar \
        --keyring="$(debian_keyring)" "${proxies[@]}" \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
        trixie - "$(debian_mirror)" 2>>"$LOG" </dev/null
}

# The tag is set last: an interrupted import leaves an untagged image, which the next one removes.
build_local() {
    local dir id
    docker image ls --quiet --filter dangling=true --filter label=dev.flashruntime.image=base |
        xargs -r docker image rm --force >/dev/null 2>&1 || true
    dir=$(private_dir base)
    say "building $LOCAL from Debian packages: about a minute (log: $LOG)"
    if ! id=$(bootstrap "$dir" | docker import --change "LABEL $LABEL dev.flashruntime.image=base dev.flashruntime.inputs=$(inputs)" \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'ENV LANG=C.UTF-8' \
        --change 'CMD ["python3"]' -); then
        [ -z "$id" ] || docker image rm --force "$id" >/dev/null 2>&1 || true
        tail -n 15 "$LOG" >&2
        fail "the base image could not be built (see $LOG)" "check the Debian mirror and the free disk space, then run it again"
    fi
    docker tag "$id" "$LOCAL"
    rm -rf -- "$dir"
    say "built $LOCAL"
}

main() {
    mkdir -p "$STATE_DIR"
    if [ -n "${BASE_IMAGE:-}" ]; then
        has_image "$BASE_IMAGE" || pull "$BASE_IMAGE" ||
            fail "BASE_IMAGE=$BASE_IMAGE is neither here nor can it be pulled ($(pull_error))" \
                "name an image that 'docker pull' gets, or leave BASE_IMAGE unset"
        echo "$BASE_IMAGE"
    elif has_image "$PUBLISHED"; then
        echo "$PUBLISHED"
    elif has_local; then
        echo "$LOCAL"
    elif pull "$PUBLISHED"; then
        echo "$PUBLISHED"
    else
        say "no image registry in reach ($(pull_error))"
        require_bootstrap
        exec 8>"$STATE_DIR/base.lock"
        flock -w 900 8 || fail "another build of the base image has not ended within 900 s"
        has_local || : >"$LOG"
        has_local || build_local
        echo "$LOCAL"
    fi
}

main
