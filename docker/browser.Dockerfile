# A browser without a screen, for the tests of the live page: driven over standard input and output.
ARG BASE_IMAGE=python:3.13-slim
FROM ${BASE_IMAGE}
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then set -- -o Acquire::https::CaInfo=/run/secrets/ca_bundle; fi; \
    export DEBIAN_FRONTEND=noninteractive && \
    apt-get "$@" -qq update && \
    apt-get "$@" -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends \
        chromium-headless-shell fonts-dejavu-core >/dev/null && \
    rm -rf /var/lib/apt/lists/*
LABEL dev.flashruntime.owner=flashruntime
USER 10001:10001
ENV HOME=/tmp
# The protocol comes in on descriptor 3 and goes out on 4; the container is the sandbox.
ENTRYPOINT ["sh", "-c", "exec 3<&0 4>&1 1>&2 </dev/null && exec chromium-headless-shell \
    --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --user-data-dir=/tmp/profile about:blank"]
