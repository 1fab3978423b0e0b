# shellcheck shell=bash
# What every set-up script shares: messages, time limits, the lock, the host's package mirror.

# shellcheck disable=SC2034
LABEL="dev.flashruntime.owner=flashruntime"
if [ -n "${FLASHML_ENGINE_STATE:-}" ]; then
    STATE_DIR=$FLASHML_ENGINE_STATE
elif [ "$(id -u)" -eq 0 ]; then
    STATE_DIR=/var/lib/flashruntime-engine
else
    STATE_DIR="${XDG_STATE_HOME:-$HOME/.local/state}/flashruntime-engine"
fi
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then
    echo "error: bash 5.1 or newer is needed, this is $BASH_VERSION" >&2
    exit 1
fi
SETUP_T0="${FLASHML_SETUP_T0:-$EPOCHSECONDS}"

say() {
    printf '%-9s %4ss  %s\n' "${STEP:-setup}" "$((EPOCHSECONDS - SETUP_T0))" "$*" >&2
}

# fail MESSAGE...: the first argument is what went wrong, the others are remedies, one a line.
fail() {
    printf '\n%s: error: %s\n' "${STEP:-setup}" "$1" >&2
    shift
    for remedy in "$@"; do printf '  - %s\n' "$remedy" >&2; done
    exit "${FAIL_CODE:-1}"
}

# wrong MESSAGE...: as fail, for a value that breaks a rule.
wrong() { FAIL_CODE=2 fail "$@"; }

have() { command -v "$1" >/dev/null 2>&1; }

# digest FILE...: one digest over their contents, in the order given.
digest() { cat -- "$@" | sha256sum | cut -d' ' -f1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# os_field NAME: a value of /etc/os-release, empty where it is not stated.
os_field() {
    # shellcheck source=/dev/null
    (. "${FLASHML_OS_RELEASE:-/etc/os-release}" 2>/dev/null && eval "printf '%s' \"\${$1:-}\"")
}

is_debian_like() {
    case " $(os_field ID) $(os_field ID_LIKE) " in *" debian "* | *" ubuntu "*) have apt-get ;; *) return 1 ;; esac
}

# quietly LOG COMMAND...: output goes to LOG, whose end is shown when the command fails.
quietly() {
    local log=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null && return 0
    local rc=$?
    tail -n 25 "$log" >&2
    return "$rc"
}

# One apt at a time among our own steps: apt and dpkg give up at once on some of each other's locks.
alone() {
    mkdir -p "$STATE_DIR"
    flock --close "$STATE_DIR/apt.lock" "$@"
}

apt_get() { alone apt-get -q -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@"; }

# The mirror that the host's own apt configuration names for its release; empty where there is none.
# apt knows its sources only after an update, which fresh images lack.
debian_mirror() {
    local mirror
    [ "$(os_field ID)" = debian ] || return 0
    mirror=$(known_mirror)
    if [ -z "$mirror" ] && is_root; then
        apt_get update >/dev/null 2>&1 </dev/null || true
        mirror=$(known_mirror)
    fi
    printf '%s' "$mirror"
}

known_mirror() {
    local codename
    codename=$(os_field VERSION_CODENAME)
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(RELEASE) $(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk -v c="$codename" '($1 == c || $2 == c) && $3 == "main" { sub(/\/$/, "", $4); print $4; exit }'
}

debian_keyring() {
    local ring=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ -r "$ring" ]; then printf '%s' "$ring"; fi
}

# apt_options DIR: options, one a line, that add Debian trixie at low priority from a private directory, so that
# nothing under /etc/apt changes and nothing is left behind when the installation is interrupted.
apt_options() {
    local dir=$1 codename mirror ring signed=""
    codename=$(os_field VERSION_CODENAME)
    mirror=$(debian_mirror)
    ring=$(debian_keyring)
    [ -n "$ring" ] && signed="[signed-by=$ring] "
    mkdir -p "$dir/lists/partial" "$dir/none"
    {
        printf 'deb %s%s %s main\n' "$signed" "$mirror" "$codename"
        [ "$codename" = trixie ] || printf 'deb %s%s trixie main\n' "$signed" "$mirror"
    } >"$dir/sources.list"
    {
        cat /etc/apt/preferences 2>/dev/null || true
        printf '\nPackage: *\nPin: release n=trixie\nPin-Priority: %s\n' "$([ "$codename" = trixie ] && echo 500 || echo 50)"
    } >"$dir/preferences"
    printf '%s\n' -o "Dir::Etc::sourcelist=$dir/sources.list" -o "Dir::Etc::sourceparts=$dir/none" \
        -o "Dir::State::lists=$dir/lists" -o "Dir::Etc::preferences=$dir/preferences" \
        -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache="
}

# apt_install LOG PACKAGE...: waits for another apt, repairs an interrupted one, never asks.
apt_install() {
    local log=$1
    shift
    export DEBIAN_FRONTEND=noninteractive
    quietly "$log" alone dpkg --configure -a || return 1
    quietly "$log" apt_get "${APT_OPTIONS[@]}" \
        -o Dpkg::Options::=--force-confold install -y --no-install-recommends "$@"
}

# private_dir NAME: a fresh directory under the state directory; a killed predecessor's is removed first.
private_dir() {
    local dir="$STATE_DIR/$1"
    rm -rf -- "$dir"
    mkdir -p -- "$dir"
    chmod 755 "$dir"
    printf '%s' "$dir"
}
