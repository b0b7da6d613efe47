#!/usr/bin/env python3
r"""Compares the machine code of two builds of the same CUDA objects, kernel by kernel.

For a refactoring that must not change generated code: give it the object files (or folders of them) of the build before
and of the build after. A kernel is "same" if both have the same instructions in the same order, registers and constants
included; otherwise its row shows how far the counts of instructions moved, and registers, shared memory and spills.

usage: tools/compare_sass.py BEFORE AFTER [--all] [--rename=REGEX=NAME]...     needs cuobjdump and c++filt
  BEFORE, AFTER: a .cu.o, or a folder, below which all of them are read
  --all: also lists the kernels that are the same
  --rename: a kernel before whose name matches has this name after; \1 is the first group
The exit status is 1 if a kernel has no partner, or needs more registers, more shared memory or more stack than before.
"""
import collections
import pathlib
import re
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?);\s*/\*")
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def name_of(symbol):
    """A kernel's name without what depends on its file: return type, namespaces, parameters."""
    name = run("c++filt", symbol).strip()
    name = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|zipage::|compression::", "", name)
    name = re.sub(r"^void ", "", name)
    depth = 0
    for i, c in enumerate(name):
        depth += {"<": 1, ">": -1}.get(c, 0)
        if c == "(" and depth == 0:
            return name[:i]
    return name


class Kernel:
    def __init__(self):
        self.code = []
        self.registers = self.stack = self.shared = 0

    def counts(self):
        return collections.Counter(
            next(w for w in line.split() if not w.startswith("@")).split(".")[0] for line in self.code)


def read(path):
    kernels = collections.defaultdict(Kernel)
    files = sorted(path.rglob("*.cu.o")) if path.is_dir() else [path]
    for file in files:
        kernel = None
        for line in run("cuobjdump", "-sass", str(file)).splitlines():
            if "Function :" in line:
                kernel = kernels[name_of(line.split(":", 1)[1].strip())]
            elif kernel is not None and (match := INSTRUCTION.match(line)):
                # Jump targets are addresses of this function; they move with anything before them.
                kernel.code.append(re.sub(r"`\([^)]*\)|\b0x[0-9a-f]+\b(?=\s*$)", "TARGET", match.group(1))
                                   if re.search(r"\b(BRA|BSSY|CALL|WARPSYNC|RET)\b", match.group(1)) else match.group(1))
        name = None
        for line in run("cuobjdump", "-res-usage", str(file)).splitlines():
            if line.strip().startswith("Function "):
                name = name_of(line.strip().split()[1].rstrip(":"))
            elif name and (match := RESOURCES.search(line)):
                kernel = kernels[name]
                kernel.registers, kernel.stack, kernel.shared = (int(match.group(i)) for i in (1, 2, 3))
    return kernels


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(arguments) != 2:
        print(__doc__.split("usage: ")[1], file=sys.stderr)
        return 2
    before, after = (read(pathlib.Path(a)) for a in arguments)
    for rename in (a.removeprefix("--rename=") for a in sys.argv[1:] if a.startswith("--rename=")):
        pattern, _, new = rename.partition("=")
        before = {re.sub(pattern, new, name): kernel for name, kernel in before.items()}
    status = 0
    same = 0
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            print(f"{name}: only {'before' if name in before else 'after'}")
            status = 1
            continue
        a, b = before[name], after[name]
        if a.code == b.code and a.shared == b.shared:
            same += 1
            if "--all" in sys.argv:
                print(f"{name}: same, {len(a.code)} instructions")
            continue
        moved = b.counts()
        moved.subtract(a.counts())
        text = " ".join(f"{op}{n:+d}" for op, n in sorted(moved.items(), key=lambda x: -abs(x[1]))[:8] if n)
        print(f"{name}: instructions {len(a.code)} -> {len(b.code)}, registers {a.registers} -> {b.registers}, "
              f"shared {a.shared} -> {b.shared}, stack {a.stack} -> {b.stack}; {text or 'same counts'}")
        if b.registers > a.registers or b.shared > a.shared or b.stack > a.stack:
            status = 1
    print(f"{same} of {len(before)} kernels are the same")
    return status


sys.exit(main())
