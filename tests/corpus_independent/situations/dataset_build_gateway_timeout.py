"""The hub answers 504; the data set library wraps it in an error that names only the data set."""


class HfHubHTTPError(OSError):
    __module__ = "huggingface_hub.errors"


class DatasetGenerationError(Exception):
    __module__ = "datasets.exceptions"


def fetch_shard() -> bytes:
    raise HfHubHTTPError(
        "504 Server Error: Gateway Time-out for url: https://huggingface.co/datasets/acme/webtext/"
        "resolve/9f1c2e/data/train-00117-of-00256.parquet"
    )


def build() -> None:
    try:
        fetch_shard()
    except HfHubHTTPError as e:
        raise DatasetGenerationError("An error occurred while generating the dataset") from e


print("Generating train split:  46%|####5     | 117/256 [08:12<09:45, 4.21s/shards]", flush=True)
build()
