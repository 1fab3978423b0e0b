"""HF_HUB_OFFLINE is set and the tokenizer is not cached; the last error speaks of connecting."""

import os


class LocalEntryNotFoundError(FileNotFoundError, ValueError):
    __module__ = "huggingface_hub.errors"


def hf_hub_download(local_files_only: bool) -> str:
    if local_files_only:
        raise LocalEntryNotFoundError(
            "Cannot find the requested files in the disk cache and outgoing traffic has been "
            "disabled. To enable hf.co look-ups and downloads online, set 'local_files_only' "
            "to False."
        )
    return "tokenizer_config.json"


def cached_file(repo: str) -> str:
    try:
        return hf_hub_download(local_files_only=os.environ.get("HF_HUB_OFFLINE") == "1")
    except LocalEntryNotFoundError as e:
        raise OSError(
            "We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it "
            f"in the cached files and it looks like {repo} is not the path to a directory "
            "containing a file named tokenizer_config.json.\nCheckout your internet connection or "
            "see how to run the library in offline mode at "
            "'https://huggingface.co/docs/transformers/installation#offline-mode'."
        ) from e


print("loading", cached_file("acme-research/legal-bert-v3"))
