"""Real vLLM 0.32 on the CPU: built once into the cache, served from there or, in pods, from the fixed path `/opt/vllm`.

`python -m e2e.vllm prepare` builds it and prints its folder; `python -m e2e.vllm serve -- FLAGS` runs it here with the
made-up model of `e2e.fakevllm.model`. The folder is a virtual environment on Debian's python3 with the model in
`model/`. It is too large for an image, so pods get it mounted read-only at `/opt/vllm`; its scripts say so in their
first line, and everything else in it finds itself. Pods need Debian's python3 (3.11) and libnuma1 in their image.
"""

from e2e.vllm.build import HOME, folder
from e2e.vllm.serve import command, environment

__all__ = ["HOME", "command", "environment", "folder"]
