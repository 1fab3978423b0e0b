# The runtime with the frameworks that benchmarks compare it with, in a virtual environment of their own.
ARG RUNTIME_IMAGE=flashruntime/runtime:local
FROM ${RUNTIME_IMAGE}
ARG PIP_INDEX_URL=""
LABEL dev.flashruntime.owner=flashruntime
USER 0:0
# It sees the runtime's own packages (torch, pydantic), so that nothing is downloaded twice.
RUN --mount=type=secret,id=ca_bundle --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi && \
    if [ -z "$PIP_INDEX_URL" ]; then unset PIP_INDEX_URL; fi && \
    python -m venv --system-site-packages /opt/comparators && \
    python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
        >"$(/opt/comparators/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/runtime.pth" && \
    /opt/comparators/bin/pip install --quiet --disable-pip-version-check --progress-bar off 'ray[tune,train]==2.60.0' accelerate==1.15.0 && \
    /opt/comparators/bin/python -c "import accelerate, ray.tune, torch"
USER 10001:10001
