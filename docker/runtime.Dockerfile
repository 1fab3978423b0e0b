# The runtime's image, coordinator and worker (target runtime), and the same with the tests (target test).
# BASE_IMAGE is a Debian with Python 3.13; TORCH_INDEX_URL names an index of CPU wheels where apt's torch is not wanted.
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS torch
ARG TORCH_INDEX_URL=""
ARG PIP_INDEX_URL=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off
WORKDIR /opt/build
COPY docker/torch-venv.sh constraints.txt ./
RUN --mount=type=secret,id=ca_bundle --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    DEBIAN_FRONTEND=noninteractive sh torch-venv.sh /opt/venv
ENV PATH=/opt/venv/bin:$PATH VIRTUAL_ENV=/opt/venv

FROM torch AS dependencies
COPY docker/pip-install.sh pyproject.toml constraints.txt ./
RUN --mount=type=secret,id=ca_bundle --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(*p['dependencies'], *p['optional-dependencies']['service'], sep='\n')" >requirements.txt && \
    sh pip-install.sh --requirement requirements.txt scikit-learn 'setuptools>=77'
RUN groupadd --gid 10001 flash && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/flashruntime --shell /usr/sbin/nologin flash && \
    for directory in . ledger artifacts checkpoints work; do \
        install -d -o flash -g flash -m 0750 "/var/lib/flashruntime/$directory"; done
ENV FLASHML_LEDGER_DIR=/var/lib/flashruntime/ledger \
    FLASHML_ARTIFACT_DIR=/var/lib/flashruntime/artifacts \
    FLASHML_CHECKPOINT_ROOT=/var/lib/flashruntime/checkpoints \
    FLASHML_WORK_DIR=/var/lib/flashruntime/work \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
LABEL dev.flashruntime.owner=flashruntime

FROM dependencies AS wheel
COPY LICENSE README.m[d] ./
COPY flashruntime ./flashruntime
RUN touch README.md && pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheel .

FROM dependencies AS runtime
RUN --mount=type=bind,from=wheel,source=/opt/wheel,target=/opt/wheel pip install --quiet --no-deps --no-index /opt/wheel/*.whl
WORKDIR /var/lib/flashruntime
USER 10001:10001
CMD ["flashruntime", "--help"]

FROM dependencies AS test-dependencies
RUN --mount=type=secret,id=ca_bundle --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    sh pip-install.sh pytest pytest-timeout hypothesis
# For the test of the Hugging Face callback alone; torch is there already. Only what that imports is compiled.
RUN --mount=type=secret,id=ca_bundle --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    sh pip-install.sh --no-compile transformers accelerate && \
    PYTHONDONTWRITEBYTECODE= python -c "from transformers import GPT2LMHeadModel, Trainer"

FROM test-dependencies AS test
ENV HF_HUB_OFFLINE=1
RUN --mount=type=bind,from=wheel,source=/opt/wheel,target=/opt/wheel pip install --quiet --no-deps --no-index /opt/wheel/*.whl
WORKDIR /opt/flashruntime
COPY pyproject.toml ./
COPY chaos ./chaos
COPY tests/unit/torch_helper ./tests/unit/torch_helper
USER 10001:10001
CMD ["pytest", "-p", "no:cacheprovider", "-m", "torch and not bench_stress", "tests/unit/torch_helper"]
