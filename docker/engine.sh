#!/usr/bin/env bash
# A Docker engine with compose and buildx: the one that answers, else one that is installed and started here.
# Verbs: ensure (default), stop (only an engine that this script started), status.
set -euo pipefail
export STEP=engine
# shellcheck source=docker/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LOG="$STATE_DIR/dockerd.log"
PID_FILE="$STATE_DIR/docker.pid"
OWNED="$STATE_DIR/started"
READY_S="${FLASHML_ENGINE_READY_S:-60}"
MIN_FREE_MIB="${FLASHML_MIN_FREE_MIB:-4096}"

CHOICES=(
    "start an engine of your own (for example: systemctl start docker) or point DOCKER_HOST at one"
    "run this as root on Debian or Ubuntu with FLASHML_ENGINE unset: an engine is then installed and started"
)

engine_answer() { timeout 10 docker version --format '{{.Server.Version}}' 2>&1; }

server_version() { have docker && engine_answer | grep -E '^[0-9]'; }

# lives PID NAME: a killed process that nobody reaped is a zombie, and its pid may be another process's by now.
lives() {
    [[ "$(cat "/proc/$1/stat" 2>/dev/null)" == "$1 ($2) "[!ZX]* ]]
}

is_dockerd() { lives "$1" dockerd; }

# The pid of any running dockerd, empty where there is none.
dockerd_pid() {
    local pid
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        if is_dockerd "$pid"; then printf '%s' "$pid" && return 0; fi
    done
}

uses_default_socket() {
    [ -z "${DOCKER_HOST:-}" ] || [ "${DOCKER_HOST}" = unix:///var/run/docker.sock ] || return 1
    have docker || return 0
    [ "$(timeout 10 docker context show 2>/dev/null || echo default)" = default ]
}

has_systemd() { [ -d /run/systemd/system ] && have systemctl; }

wait_ready() {
    local deadline=$((SECONDS + READY_S))
    while [ "$SECONDS" -lt "$deadline" ]; do
        server_version >/dev/null && return 0
        if [ -n "${1:-}" ] && ! is_dockerd "$1"; then return 1; fi
        sleep 0.2
    done
    return 1
}

missing_packages() {
    local wanted=""
    if ! have dockerd && [ "${1:-}" = engine ]; then wanted="docker.io"; fi
    have docker || wanted="$wanted docker-cli"
    docker compose version >/dev/null 2>&1 || wanted="$wanted docker-compose"
    docker buildx version >/dev/null 2>&1 || wanted="$wanted docker-buildx"
    printf '%s' "$wanted"
}

ubuntu_names() {
    sed -e 's/docker-compose/docker-compose-v2/' -e 's/docker-cli/docker.io/' <<<"$1"
}

# install_packages NAMES: from Debian trixie on Debian (the release's own compose is too old), from the host's archive on Ubuntu.
install_packages() {
    local wanted=$1 dir log name
    local -a names=()
    mkdir -p "$STATE_DIR"
    log="$STATE_DIR/apt.log"
    APT_OPTIONS=()
    say "installing $wanted"
    if [ "$(os_field ID)" = debian ]; then
        [ -n "$(debian_mirror)" ] || fail "apt's configuration names no Debian mirror for $(os_field VERSION_CODENAME)" \
            "add the release's own source to /etc/apt, or install a Docker engine yourself"
        dir=$(private_dir apt)
        mapfile -t APT_OPTIONS < <(apt_options "$dir")
        for name in $wanted; do names+=("$name/trixie"); done
        have iptables || names+=(iptables)
    else
        read -ra names <<<"$(ubuntu_names "$wanted")"
    fi
    quietly "$log" apt_get "${APT_OPTIONS[@]}" update ||
        fail "apt-get update failed (see $log)" "check the network and the apt sources of this machine, then run it again"
    apt_install "$log" "${names[@]}" ||
        fail "apt-get could not install: ${names[*]} (see $log)" \
            "run 'dpkg --configure -a' and 'apt-get -f install' if an earlier installation was interrupted, then again" \
            "or install a Docker engine with compose and buildx yourself"
    rm -rf -- "$STATE_DIR/apt"
}

# dockerd takes a pid file for a running process, whatever that process is by now; no dockerd runs here.
remove_stale_pid_files() {
    local containerd=/var/run/docker/containerd/containerd.pid
    rm -f -- "$PID_FILE" /var/run/docker.pid
    if [ -e "$containerd" ] && ! lives "$(cat "$containerd")" containerd; then rm -f -- "$containerd"; fi
}

start_by_hand() {
    local pid
    remove_stale_pid_files
    : >"$LOG"
    setsid dockerd --pidfile "$PID_FILE" >>"$LOG" 2>&1 </dev/null 9>&- &
    pid=$!
    echo "$pid" >"$OWNED"
    # Until setsid has become dockerd, its pid bears another name.
    while [ -e "/proc/$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != dockerd ]; do sleep 0.05; done
    if ! wait_ready "$pid"; then
        kill "$pid" 2>/dev/null || true
        rm -f -- "$OWNED"
        tail -n 15 "$LOG" >&2
        fail "dockerd did not become ready within $READY_S s (its log: $LOG)" \
            "the machine may forbid what an engine needs (mounts, cgroups, iptables): use one that runs elsewhere through DOCKER_HOST"
    fi
}

start_engine() {
    say "starting dockerd (log: $LOG; 'make clean' stops it)"
    if has_systemd; then
        systemctl start docker || fail "systemd could not start docker" "look at: journalctl -u docker"
        echo systemd >"$OWNED"
        wait_ready || fail "the engine did not become ready within $READY_S s" "look at: journalctl -u docker"
    else
        start_by_hand
    fi
}

refuse_unless_allowed() {
    local why="no Docker engine answers" answer=""
    if have docker; then answer=$(engine_answer | grep -v '^$' | head -n 1 | cut -c1-200 || true); fi
    [ -z "$answer" ] || why="$why ($answer)"
    if [[ "$answer" == *"permission denied"* ]]; then
        fail "$why" "let this user use the engine (group docker, or a rootless engine), or run as root"
    fi
    uses_default_socket ||
        fail "$why, at DOCKER_HOST=${DOCKER_HOST:-} (context $(docker context show 2>/dev/null || echo default))" \
            "start that engine, or unset DOCKER_HOST and select the default context"
    [ "${FLASHML_ENGINE:-auto}" != never ] || fail "$why, and FLASHML_ENGINE=never forbids starting one" "${CHOICES[@]}"
    is_root || fail "$why, and only root may install and start one" "${CHOICES[@]}"
    have dockerd || is_debian_like || fail "$why, and this is neither Debian nor Ubuntu" "${CHOICES[0]}"
}

await_foreign_engine() {
    local pid
    pid=$(dockerd_pid)
    [ -n "$pid" ] || return 1
    say "an engine (pid $pid) is running but does not answer yet: waiting up to $READY_S s"
    wait_ready "$pid" && return 0
    is_dockerd "$pid" || return 1
    fail "dockerd (pid $pid) runs but does not answer on the default socket" \
        "if this project started it: docker/engine.sh stop, then again; otherwise ask whoever runs it"
}

check_plugins() {
    local wanted
    wanted=$(missing_packages)
    [ -n "$wanted" ] || return 0
    if is_root && is_debian_like && [ "${FLASHML_ENGINE:-auto}" != never ]; then
        install_packages "$wanted"
        [ -z "$(missing_packages)" ] && return 0
    fi
    fail "the docker command lacks:${wanted}" "install the compose and buildx plugins (packages docker-compose-plugin and docker-buildx-plugin of Docker, or docker-compose-v2 and docker-buildx of the distribution)"
}

check_disk() {
    local root free_mib
    root=$(timeout 10 docker info --format '{{.DockerRootDir}}' 2>/dev/null) || return 0
    [ -d "$root" ] || return 0
    free_mib=$(df -Pm "$root" | awk 'NR == 2 { print $4 }')
    [ "${free_mib:-$MIN_FREE_MIB}" -ge "$MIN_FREE_MIB" ] ||
        fail "only $free_mib MiB are free for the engine under $root; the images and runs need $MIN_FREE_MIB MiB" \
            "free some space there (docker image prune removes unused images)" \
            "or set FLASHML_MIN_FREE_MIB to a smaller number at your own risk"
}

ensure() {
    local version
    if ! server_version >/dev/null; then
        refuse_unless_allowed
        mkdir -p "$STATE_DIR"
        exec 9>"$STATE_DIR/lock"
        if ! flock -n 9; then
            say "another start of the engine is under way: waiting for it"
            flock -w 600 9 || fail "another start of the engine has not ended within 600 s" "look for a hanging apt-get or engine.sh"
        fi
        if ! server_version >/dev/null && ! await_foreign_engine; then
            if have dockerd; then say "no engine answers"; else install_packages "$(missing_packages engine)"; fi
            server_version >/dev/null || start_engine
        fi
        exec 9>&-
    fi
    check_plugins
    check_disk
    version=$(server_version)
    say "ready: engine $version$([ -e "$OWNED" ] && echo ' (started by this project)')"
}

stop_pid() {
    local pid=$1 waited=0
    kill -TERM "$pid" 2>/dev/null || return 0
    while is_dockerd "$pid"; do
        [ "$waited" -lt 150 ] || { kill -KILL "$pid" 2>/dev/null; say "it did not end within 30 s: killed"; break; }
        waited=$((waited + 1))
        sleep 0.2
    done
}

stop() {
    local owner
    if [ ! -e "$OWNED" ]; then
        say "nothing to do: this project started no engine"
        return 0
    fi
    owner=$(cat "$OWNED")
    if [ "$owner" = systemd ]; then
        systemctl stop docker.socket docker.service || true
        say "stopped the engine through systemd"
    elif is_dockerd "$owner"; then
        stop_pid "$owner"
        say "stopped the engine (pid $owner)"
    else
        say "nothing to do: the engine that this project started (pid $owner) no longer runs"
    fi
    rm -f -- "$OWNED" "$PID_FILE"
}

status() {
    local version
    version=$(server_version) || { say "no engine answers"; return 1; }
    say "engine $version$([ -e "$OWNED" ] && echo ' (started by this project)')"
}

case "${1:-ensure}" in
    ensure | stop | status) "${1:-ensure}" ;;
    *) printf 'usage: %s [ensure|stop|status]\n' "$0" >&2; exit 2 ;;
esac
