"""Compiles the kernels while Quire is installed or a wheel is built. Where that fails, the install goes on without.

QUIRE_KERNELS=none compiles none: `make` does that itself, beside pip. What was compiled before comes along.
"""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILD = Path("src", "quire", "kernels", "build.py")


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel with kernels is bound to a platform, but to no Python version: they are loaded by ctypes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        kernels = runpy.run_path(str(Path(self.root, _BUILD)))
        try:
            if os.environ.get("QUIRE_KERNELS") != "none":
                kernels["build"]()
        except kernels["BuildError"] as error:
            self.app.display_warning(f"no kernels were built, so a CPU needs 'quire-llm[torch]': {error}")
        if not any(kernels["LIBRARIES"].glob("*.so")):
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
