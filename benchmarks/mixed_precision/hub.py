"""Finds the checkpoint: in the cache of the hub's client, else on the hub, with one quick try and no retries.

The client's environment variables (HF_HOME, HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN, proxies, ...) apply.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable
from typing import TypeVar

from mixed_precision.errors import UnavailableError

MODEL_ID = "Qwen/Qwen2.5-0.5B"
# A hub that takes longer counts as unreachable. Looking up a host name has no time-out of its own.
HUB_SECONDS = 10.0
TOKENIZER_FILES = ("tokenizer.json", "vocab.json")
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER_DOWNLOADS = ["*.json", "*.txt"]
DOWNLOADS = [*TOKENIZER_DOWNLOADS, "*.safetensors"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Found:
    """Files of a commit of the checkpoint; `folder` is None while they are on the hub only."""

    source: str  # "cache" or "hub"
    commit: str
    folder: pathlib.Path | None


class NotFound(Exception):
    """Neither in the cache nor on the hub; the message says why, in one line."""


def within_seconds(seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`, or its exception, or TimeoutError; a call that hangs is left behind."""
    outcome: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            errors.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds)
    if errors:
        raise errors[0]
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return outcome[0]


def has_any(folder: pathlib.Path, files: tuple[str, ...]) -> bool:
    return any((folder / file).exists() for file in files)


def find_cached(revision: str, files: tuple[str, ...]) -> Found | None:
    """The cached commit of `revision`, if it has one of `files`. No network."""
    from huggingface_hub import snapshot_download

    try:
        folder = pathlib.Path(snapshot_download(MODEL_ID, revision=revision, local_files_only=True))
    except (OSError, ValueError):
        return None
    complete = has_any(folder, ("config.json",)) and has_any(folder, files)
    return Found("cache", folder.name, folder) if complete else None


def ask_hub(revision: str) -> Found:
    from huggingface_hub import HfApi

    def ask() -> str:
        return HfApi().model_info(MODEL_ID, revision=revision, timeout=HUB_SECONDS).sha

    try:
        return Found("hub", within_seconds(HUB_SECONDS, ask), None)
    except Exception as error:  # the client passes on the errors of its HTTP library, which has changed twice
        text = str(error).strip().splitlines()
        raise NotFound(f"not in the cache, and the hub: {text[0] if text else type(error).__name__}") from error


def find(revision: str, files: tuple[str, ...]) -> Found:
    """The checkpoint, in the cache or on the hub; raises NotFound. Downloads nothing."""
    return find_cached(revision, files) or ask_hub(revision)


def fetch(found: Found, files: list[str]) -> pathlib.Path:
    """The folder of the files, downloaded if they are on the hub."""
    from huggingface_hub import snapshot_download

    if found.folder is not None:
        return found.folder
    try:
        return pathlib.Path(snapshot_download(MODEL_ID, revision=found.commit, allow_patterns=files))
    except Exception as error:  # as above
        raise UnavailableError(f"{MODEL_ID}: the download failed: {str(error).splitlines()[0]}") from error
