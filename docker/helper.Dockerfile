# Tools that chaos runs beside a target: system calls (strace), packets (iptables), time (libfaketime), disks (e2fsprogs).
ARG BASE_IMAGE=python:3.13-slim
FROM ${BASE_IMAGE}
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then set -- -o Acquire::https::CaInfo=/run/secrets/ca_bundle; fi; \
    export DEBIAN_FRONTEND=noninteractive && \
    apt-get "$@" -qq update && \
    apt-get "$@" -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends \
        strace iptables libfaketime e2fsprogs procps >/dev/null && \
    rm -rf /var/lib/apt/lists/*
LABEL dev.flashruntime.owner=flashruntime
CMD ["python3"]
