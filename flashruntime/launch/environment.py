"""The environment of a launched process: what it inherits, what it is given, what is kept back.

Inherited are only the variables named here; of those, none whose name speaks of a secret. The
job's own variables come on top, and the runtime's (FLASHML_*) on top of those.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

HOOK_DIR = Path(__file__).parent / "hook"

# fmt: off
INHERITED_NAMES = frozenset({
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "CURL_CA_BUNDLE", "DONT_FAKE_MONOTONIC", "FAKETIME",
    "FAKETIME_DONT_FAKE_MONOTONIC", "FAKETIME_TIMESTAMP_FILE", "HF_DATASETS_CACHE",
    "HF_DATASETS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HOME", "LANG",
    "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "PATH", "PYTHONDONTWRITEBYTECODE",
    "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONPYCACHEPREFIX",
    "PYTHONUNBUFFERED", "PYTHONWARNINGS", "REQUESTS_CA_BUNDLE", "SHELL", "SSL_CERT_DIR",
    "SSL_CERT_FILE", "TERM", "TMPDIR", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "TZ", "USER",
    "VIRTUAL_ENV", "XDG_CACHE_HOME",
})
INHERITED_PREFIXES = (
    "CUBLAS_", "CUDA_", "CUDNN_", "GLOO_", "GOMP_", "HIP_", "HSA_", "KMP_", "LC_", "MKL_",
    "NCCL_", "NUMEXPR_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTORCH_", "ROCR_", "TORCH_", "XLA_",
)
# fmt: on
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|(API|ACCESS|AUTH)_?KEY")


# What libraries read while they are imported, beside what is inherited.
_READ_AT_IMPORT = re.compile(
    "PYTHON|LD_|MALLOC_|TORCH|TRITON|NUMPY|NPY_|SKLEARN|SCIPY|JOBLIB|LOKY|TQDM|MPL|BLIS_|VECLIB_|"
    "HF_|TRANSFORMERS|SAFETENSORS|USE_|DISABLE_|ENABLE_|http|HTTP|no_proxy|NO_PROXY|XDG_|TMP|TEMP"
)


def child_environment(
    inherited: Mapping[str, str], job: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a process.

    `given` are the runtime's own variables, which a job cannot override. The directory of the
    error hook stands first on PYTHONPATH.
    """
    passed = {name: value for name, value in inherited.items() if is_inherited(name)}
    env = {"PYTHONUNBUFFERED": "1", **passed, **job, **given}
    paths = [str(HOOK_DIR), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}


def is_inherited(name: str) -> bool:
    """Whether a variable of the launching process reaches the job."""
    if _SECRET.search(name.upper()):
        return False
    return name in INHERITED_NAMES or name.startswith(INHERITED_PREFIXES)


def may_change_imports(name: str) -> bool:
    """Whether a variable may change what an interpreter or a library is after it was imported."""
    known = name in INHERITED_NAMES or name.startswith(INHERITED_PREFIXES)
    return known or _READ_AT_IMPORT.match(name) is not None
