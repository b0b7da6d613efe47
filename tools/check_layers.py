#!/usr/bin/env python3
"""Reads every include under src/, include/ and python/ and fails when a room sees one it may not see.

The table is docs/architecture.md's. Third-party includes are free, except in include/zipage, whose headers also have no
preprocessor conditions and no CUDA.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Room -> rooms whose headers it may include, besides its own and include/zipage's vocabulary.
ALLOWED = {
    "base": "",
    "tensor": "base",
    "tokenizer": "base",
    "blocks": "base",
    "weights": "base tensor",
    "backend": "base tensor",
    "backend/cpu": "base tensor backend sampling",
    "backend/cuda": "base tensor backend sampling",
    "backend/registry": "base tensor backend backend/cpu backend/cuda",
    "sampling": "base tensor backend",
    "schedule": "base blocks",
    "kvcache": "base tensor backend blocks",
    "model": "base tensor backend weights",
    "compress": "base tensor backend blocks kvcache",
    "engine": "base tensor tokenizer blocks weights backend backend/registry sampling schedule kvcache model compress",
    "server": "base",
    "cli": "base server schedule",  # schedule: `zipage bench schedule` runs it without an engine
}
# What any room may take from include/zipage: the vocabulary, not the engine.
VOCABULARY = {"zipage/status.h", "zipage/options.h", "zipage/kv_policy.h", "zipage/sampling_params.h", "zipage/kv_trace.h"}
SEES_PUBLIC_API = {"engine", "server", "cli", "tokenizer"}


def room_of(path):
    """The room of a path below src/: the longest prefix in the table."""
    parts = path.parts[:-1]
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in ALLOWED:
            return name
    return None


def complaints():
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        relative = path.relative_to(ROOT / "src")
        room = room_of(relative)
        if room is None:
            yield f"src/{relative}: this folder is in no room of tools/check_layers.py"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1)
            place = f"src/{relative}:{number}"
            if target.startswith("zipage/"):
                if target not in VOCABULARY and room not in SEES_PUBLIC_API:
                    yield f"{place}: room {room} may not include the public API's {target}"
                continue
            seen = room_of(pathlib.PurePath(target))
            if seen is None:
                yield f'{place}: "{target}" names no room; write the path from src/'
            elif seen != room and seen not in ALLOWED[room].split():
                yield f"{place}: room {room} may not include {target} (it may see: {ALLOWED[room] or 'nothing'})"
    for path in sorted((ROOT / "python/core").iterdir()):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if match and not match.group(1).startswith("zipage/") and not (path.parent / match.group(1)).exists():
                yield f"python/core/{path.name}:{number}: python sees include/zipage and its own headers, not {match.group(1)}"
    for path in sorted((ROOT / "include/zipage").glob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place = f"include/zipage/{path.name}:{number}"
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b", line):
                yield f"{place}: public headers have no preprocessor conditions"
            match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            if match and "/" in match.group(1) and not match.group(1).startswith("zipage/"):
                yield f"{place}: public headers include the standard library and zipage/ only, not {match.group(1)}"


found = list(complaints())
print("\n".join(found) if found else "layers: every include is allowed")
sys.exit(1 if found else 0)
