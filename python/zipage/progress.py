"""Progress bars on stderr: tqdm's where it is installed, else a plain one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


class PlainBar:
    """The part of tqdm's interface that is used here."""

    def __init__(self, total: int, desc: str, dynamic_ncols: bool = True, postfix: str = "") -> None:
        self.total, self.n, self.postfix = total, 0, postfix
        self._desc, self._start, self._drawn, self._has_line = desc, time.monotonic(), 0.0, False
        self._draw()

    def update(self, n: int = 1) -> None:
        self.n += n
        # On a terminal ten times a second are enough; in a file only the last line is worth its place.
        if self.n < self.total and sys.stderr.isatty() and time.monotonic() - self._drawn > 0.1:
            self._draw()

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        self.postfix = text

    def close(self) -> None:
        self._draw()
        if self._has_line:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        seconds = self._drawn - self._start
        share = self.n / self.total if self.total else 1.0
        filled = "#" * int(20 * share)
        rate = self.n / seconds if seconds > 0 else 0.0
        start = "\r" if sys.stderr.isatty() else ""
        tail = f", {self.postfix}" if self.postfix else ""
        if sys.stderr.isatty() or self.n >= self.total:
            self._has_line = True
            sys.stderr.write(f"{start}{self._desc}: {share:4.0%}|{filled:20}| {self.n}/{self.total} "
                             f"[{seconds:.1f}s, {rate:.2f}it/s{tail}]")
            sys.stderr.flush()


def open_bar(use_tqdm: bool | Callable[..., Any], total: int, desc: str) -> Any | None:
    """A bar, or None without `use_tqdm`. `use_tqdm` may be a class like tqdm's."""
    if not use_tqdm or total == 0:
        return None
    make = use_tqdm if callable(use_tqdm) else _bar_class()
    return make(total=total, desc=desc, dynamic_ncols=True)


def _bar_class() -> Callable[..., Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return PlainBar
    return tqdm
