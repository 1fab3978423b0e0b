"""Survives a connection reset while fetching weights, then loads them into another shape."""

import logging

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("weights")


def download(attempt: int) -> dict[str, tuple[int, ...]]:
    if attempt == 1:
        raise ConnectionResetError(104, "Connection reset by peer")
    return {"encoder.weight": (768, 768), "head.weight": (10, 768), "head.bias": (10,)}


def fetch() -> dict[str, tuple[int, ...]]:
    for attempt in (1, 2, 3):
        try:
            return download(attempt)
        except ConnectionResetError:
            log.exception("download of base.safetensors failed, retrying (%d of 3)", attempt)
    raise TimeoutError("download of base.safetensors timed out")


def load_state_dict(model: dict[str, tuple[int, ...]], saved: dict[str, tuple[int, ...]]) -> None:
    wrong = [
        f"size mismatch for {name}: copying a param with shape torch.Size({list(saved[name])}) "
        f"from checkpoint, the shape in current model is torch.Size({list(shape)})."
        for name, shape in model.items()
        if saved[name] != shape
    ]
    if wrong:
        raise RuntimeError(
            "Error(s) in loading state_dict for TextClassifier:\n\t" + "\n\t".join(wrong)
        )


weights = fetch()
log.info("base.safetensors complete, 438 MB")
load_state_dict(
    {"encoder.weight": (768, 768), "head.weight": (12, 768), "head.bias": (12,)}, weights
)
