#!/usr/bin/env python3
"""Fails when a file, a function or a folder has grown beyond what a reader can take in.

Limits: files of at most 500 lines, functions of at most 60 (from signature to closing brace), folders of at most 25 files.
Files of kernels (src/backend/cpu, CUDA) may have 700 lines and kernels (CUDA: __global__ functions; CPU: any function there)
120. What is larger stands in tools/size_exceptions.txt with its reason; an exception that is no longer needed is an error.

usage: check_sizes.py [--root FOLDER] [--list]    (--list: prints what is too large in the format of the exceptions)
"""
import argparse
import ast
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cpp_functions import functions  # noqa: E402

MAX_FILE_LINES = 500
MAX_KERNEL_FILE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120
MAX_FOLDER_FILES = 25

FOLDERS = ("include", "src", "tests", "bench", "python", "examples", "tools", "script", "docs", "cmake", "deploy")
CPP = {".h", ".cc", ".cu", ".cuh"}
SOURCES = CPP | {".py", ".sh", ""}


def tracked_files(root):
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", str(root), "ls-files"], check=True, capture_output=True, text=True).stdout
        return [path for path in listed.splitlines() if (root / path).exists()]
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def is_kernel_file(path):
    return path.endswith((".cu", ".cuh")) or path.startswith("src/backend/cpu/")


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno + 1 - node.lineno, False


def too_large(root):
    """Yields (subject, what it has, limit); the subject is a path, path:function, or a folder with a slash at its end."""
    folders = {}
    for name in tracked_files(root):
        if not name.startswith(tuple(f + "/" for f in FOLDERS)):
            continue
        path = root / name
        folders[str(pathlib.PurePath(name).parent)] = folders.get(str(pathlib.PurePath(name).parent), 0) + 1
        if path.suffix not in SOURCES:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        kernels = is_kernel_file(name)
        limit = MAX_KERNEL_FILE_LINES if kernels else MAX_FILE_LINES
        lines = text.count("\n")
        if lines > limit:
            yield name, f"{lines} lines", limit
        found = functions(text) if path.suffix in CPP else python_functions(text) if path.suffix == ".py" else ()
        for function, _, length, is_global in found:
            limit = MAX_KERNEL_LINES if is_global or name.startswith("src/backend/cpu/") else MAX_FUNCTION_LINES
            if length > limit:
                yield f"{name}:{function}", f"{length} lines", limit
    for folder, count in sorted(folders.items()):
        if count > MAX_FOLDER_FILES:
            yield folder + "/", f"{count} files", MAX_FOLDER_FILES


def read_exceptions(path):
    result = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        subject, _, reason = line.partition(" ")
        if not reason.strip():
            sys.exit(f"{path}:{number}: '{subject}' has no reason")
        result[subject] = reason.strip()
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    listed = options.root / "tools/size_exceptions.txt"
    exceptions = read_exceptions(listed)
    found = {}
    for subject, size, limit in too_large(options.root):
        found.setdefault(subject, (size, limit))
    if options.list:
        for subject, (size, limit) in sorted(found.items()):
            print(subject, exceptions.get(subject, f"{size}, limit {limit}"))
        return 0
    complaints = [f"{subject}: {size}, at most {limit}" for subject, (size, limit) in found.items()
                  if subject not in exceptions]
    complaints += [f"{listed.name}: '{subject}' is within the limits or gone: remove the line"
                   for subject in exceptions if subject not in found]
    print("\n".join(complaints) if complaints else f"sizes: within the limits, {len(exceptions)} exceptions")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
