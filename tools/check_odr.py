#!/usr/bin/env python3
"""Fails when two files define a class, struct or enum of one name in namespace zipage: the linker would mix them silently."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
places = collections.defaultdict(set)
for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "include").rglob("*.h")]):
    if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
        continue
    scopes = []  # what each open brace belongs to
    pending = ""
    for line in path.read_text().splitlines():
        line = re.sub(r'//.*|"(\\.|[^"\\])*"', "", line)
        match = re.match(r"\s*(?:inline\s+)?namespace\s*([\w:]*)", line)
        if match:
            pending = "namespace " + match.group(1)
        match = re.match(r"\s*(?:enum class|enum|class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{", line)
        if match and all(s.startswith("namespace ") and s != "namespace " for s in scopes):
            space = "::".join(s.split()[1] for s in scopes)
            places[space + "::" + match.group(1)].add(str(path.relative_to(ROOT)))
        for char in line:
            if char == "{":
                scopes.append(pending or "block")
                pending = ""
            elif char == "}" and scopes:
                scopes.pop()
found = [f"{name} is defined in {', '.join(sorted(files))}" for name, files in sorted(places.items()) if len(files) > 1]
print("\n".join(found) if found else f"names: {len(places)} types, each defined once")
sys.exit(1 if found else 0)
