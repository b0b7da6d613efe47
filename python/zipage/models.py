"""Where a model's files are."""

from __future__ import annotations

import os
import re
from pathlib import Path


def resolve_model(model: str | os.PathLike[str]) -> str:
    """A folder or GGUF file as it is; "owner/name" from the local Hugging Face cache, or fetched by huggingface_hub
    where that is installed."""
    text = os.fspath(model)
    if Path(text).exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return text
    cached = _cached_snapshot(text)
    if cached:
        return cached
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise FileNotFoundError(f"model {text!r}: no such folder or file, and not in the Hugging Face cache; give a "
                                f"folder, or pip install huggingface_hub to fetch it") from None
    return snapshot_download(text, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"])


def _cached_snapshot(name: str) -> str | None:
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    folder = hub / ("models--" + name.replace("/", "--"))
    reference = folder / "refs" / "main"
    if not reference.is_file():
        return None
    snapshot = folder / "snapshots" / reference.read_text().strip()
    complete = (snapshot / "config.json").exists() and any(snapshot.glob("*.safetensors"))
    return str(snapshot) if complete else None
