#!/usr/bin/env python3
"""Compiles every header on its own: a header includes what it uses. usage: check_headers.py [COMPILER]"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
compiler = sys.argv[1] if len(sys.argv) > 1 else "g++"
# CUDA headers need nvcc: the CUDA build compiles them.
headers = [p for folder in ("include", "src") for p in sorted((ROOT / folder).rglob("*.h")) if "cuda" not in p.parts]


# These headers are included by files of one instruction set alone (src/backend/cpu/CMakeLists.txt).
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX2_VEC = [*AVX2, "-DZIPAGE_VEC_WIDTH=8"]
ISA_FLAGS = {"_avx2": AVX2, "_x86": AVX2, "quant_vec": AVX2_VEC, "int8_gemm": AVX2_VEC,
             "_avx512": [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]}


def complaint(header):
    isa = [flag for suffix, flags in ISA_FLAGS.items() if header.stem.endswith(suffix) for flag in flags]
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", *isa, "-fsyntax-only", "-I", ROOT / "include", "-I", ROOT / "src",
               "-include", header, "-x", "c++", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"{header.relative_to(ROOT)} does not stand alone:\n{done.stderr}" if done.returncode or done.stderr else ""


with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = [text for text in pool.map(complaint, headers) if text]
print("\n".join(found) if found else f"headers: all {len(headers)} stand alone")
sys.exit(1 if found else 0)
