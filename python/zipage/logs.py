"""The engine's log lines as records of the logger "zipage"."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

logger = logging.getLogger("zipage")


def configure() -> None:
    """Shows the lines on stderr, unless the program has set up logging or ZIPAGE_CONFIGURE_LOGGING is 0."""
    if os.environ.get("ZIPAGE_CONFIGURE_LOGGING", "1") == "0" or logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [zipage] %(message)s", "%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(os.environ.get("ZIPAGE_LOGGING_LEVEL", "INFO").upper())


def write(lines: Iterable[tuple[str, str]]) -> None:
    for level, line in lines:
        logger.log(getattr(logging, level.upper(), logging.INFO), "%s", line)
