"""Stand-ins for the CUDA libraries that torch is linked with and never calls on a machine without a GPU.

PyPI's torch is built for CUDA and wants fourteen libraries, 2.5 GB, before it imports. Only three of them do anything
at import (`KEPT`). For each other one this module writes a library of the same name, with the symbols torch looks up
and with the same symbol versions, in which every function returns 0. The driver's own library is not among them: its
absence is how torch knows that there is no GPU.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

KEPT = {"libcudart.so.13", "libcupti.so.13", "libcufile.so.0"}
DRIVER = "libcuda.so.1"
UNVERSIONED = {"nccl": "libnccl.so.2", "cusparseLt": "libcusparseLt.so.0", "curand": "libcurand.so.10"}
VERSION_OF = {"libnvshmem_host.so.3": "NVSHMEM"}
CUDA = re.compile(r"lib(?:cu|nccl|nvrtc|nvshmem_host)[\w]*\.so\.\d+")


def needed(folder: Path) -> set[str]:
    """Return the CUDA libraries that the libraries in a folder are linked with."""
    linked = {
        name for path in folder.glob("*.so*") for name in re.findall(r"NEEDED.*\[(.*)\]", _run("readelf", "-d", path))
    }
    return {name for name in linked if CUDA.fullmatch(name)}


def wanted(folder: Path) -> dict[str, set[str]]:
    """Return the symbols that the libraries in a folder look up elsewhere, by the library or version that has them."""
    found: dict[str, set[str]] = {}
    for path in folder.glob("*.so*"):
        listed = _run("nm", "-D", "--undefined-only", path)
        for name, version in re.findall(r" [Uw] (\w+)(?:@+(\S+))?", listed):
            owner = version or next((lib for prefix, lib in UNVERSIONED.items() if name.startswith(prefix)), "")
            found.setdefault(owner, set()).add(name)
    return found


def write(torch_libraries: Path) -> list[str]:
    """Write the missing libraries into torch's own folder and return their names.

    Raises:
        subprocess.CalledProcessError: The C compiler failed.
    """
    symbols = wanted(torch_libraries)
    missing = sorted(needed(torch_libraries) - KEPT - {DRIVER})
    for name in missing:
        version = VERSION_OF.get(name, name)
        own = symbols.get(version, set()) | symbols.get(name, set())
        source = "".join(f"long {symbol}(void) {{ return 0; }}\n" for symbol in sorted(own))
        options = [f"-Wl,-soname,{name}"]
        script = torch_libraries / f".{name}.map"
        if name not in UNVERSIONED.values():
            script.write_text(f"{version} {{ *; }};\n")
            options.append(f"-Wl,--version-script={script}")
        subprocess.run(
            [
                "cc",
                "-w",
                "-shared",
                "-nostdlib",
                "-fno-builtin",
                *options,
                "-x",
                "c",
                "-",
                "-o",
                torch_libraries / name,
            ],
            input=source.encode(),
            check=True,
        )
        script.unlink(missing_ok=True)
    return missing


def _run(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
