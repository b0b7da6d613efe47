"""Nearest names, for errors about misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(where: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for a name that nobody knows, with the known one that looks most like it."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return TypeError(f"{where} has no option {name!r}{hint}")
