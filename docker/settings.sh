# shellcheck shell=bash disable=SC2034
# What builds and compose need to know, from the environment, the user's own lines of .env, and the host.
# The other lines of .env are ours, between the marks: they let a plain `docker compose up` find the same images.

ENV_BEGIN="# >>> written by make; your own lines stand outside of these marks and win"
ENV_END="# <<< written by make"

user_env_lines() {
    [ -f .env ] || return 0
    awk -v b="$ENV_BEGIN" -v e="$ENV_END" '$0 == b { ours = 1 } !ours { print } $0 == e { ours = 0 }' .env
}

# setting NAME DEFAULT: the environment's value, else the user's in .env, else DEFAULT.
setting() {
    local value=${!1:-}
    [ -n "$value" ] || value=$(user_env_lines | sed -nE "s/^(export )?$1=[\"']?([^\"']*)[\"']?[[:space:]]*$/\2/p" | tail -n 1)
    printf '%s' "${value:-$2}"
}

# whole NAME VALUE LEAST MOST REMEDY: a whole number within bounds, or nothing.
whole() {
    if [ -z "$2" ] || { [[ $2 =~ ^(0|[1-9][0-9]{0,18})$ ]] && (($2 >= $3 && $2 <= $4)); }; then return 0; fi
    wrong "$1=$2 must be a whole number from $3 to $4" "$5"
}

# The numbers that a user gives to make, before anything is set up with them.
check_numbers() {
    whole WORKERS "${WORKERS:-}" 1 1000 "say how many, or leave it unset: make up WORKERS=4"
    whole SEED "${SEED:-}" 0 9223372036854775807 "choose one, or leave it unset: make chaos SEED=7"
    whole FLASHML_PORT "$(setting FLASHML_PORT "")" 1 65535 "choose a free port (here or in .env), or leave it unset: make up FLASHML_PORT=8123"
}

host_ca_bundle() {
    local bundle
    for bundle in "${PIP_CERT:-}" "${REQUESTS_CA_BUNDLE:-}" "${SSL_CERT_FILE:-}" \
        /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        if [ -n "$bundle" ] && [ -r "$bundle" ]; then printf '%s' "$bundle" && return 0; fi
    done
    printf '%s' ./docker/ca-none.pem
}

# An index that carries a password stays out of image builds, whose history would keep it.
pip_index() {
    local index
    index=$(setting PIP_INDEX_URL "$(pip config get global.index-url 2>/dev/null || true)")
    case "$index" in
        *@*) say "the package index carries a password: image builds go without it" ;;
        *) printf '%s' "$index" ;;
    esac
}

load_settings() {
    BASE_IMAGE=$(setting BASE_IMAGE "")
    CA_BUNDLE=$(setting CA_BUNDLE "$(host_ca_bundle)")
    [ -r "$CA_BUNDLE" ] || fail "CA_BUNDLE=$CA_BUNDLE is not a readable file" "name a PEM bundle, or leave it unset"
    TORCH_INDEX_URL=$(setting TORCH_INDEX_URL "")
    PIP_INDEX_URL=$(pip_index)
    TOXIPROXY_IMAGE=$(setting TOXIPROXY_IMAGE "")
    export BASE_IMAGE
}

write_env() {
    local users name tmp=".env.tmp"
    users=$(user_env_lines)
    {
        [ -z "$users" ] || printf '%s\n' "$users"
        printf '%s\n' "$ENV_BEGIN"
        for name in BASE_IMAGE CA_BUNDLE TORCH_INDEX_URL PIP_INDEX_URL; do
            if [ -n "${!name}" ] && ! grep -qE "^(export )?$name=" <<<"$users"; then printf '%s=%s\n' "$name" "${!name}"; fi
        done
        printf '%s\n' "$ENV_END"
    } >"$tmp"
    if cmp -s "$tmp" .env; then rm -f -- "$tmp"; else mv -f -- "$tmp" .env; fi
}

remove_env_block() {
    local users
    [ -f .env ] || return 0
    users=$(user_env_lines)
    if [ -n "$users" ]; then printf '%s\n' "$users" >.env.tmp && mv -f .env.tmp .env; else rm -f -- .env; fi
}
