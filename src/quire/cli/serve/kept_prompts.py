"""Where a server keeps the KV of prompts by default: in the user's cache, within a size limit."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace

from quire.config import EngineConfig, format_size

logger = logging.getLogger("quire")

_MOST_BYTES, _DISK_SHARE = 10 * 10**9, 0.1
_LEAST_BYTES = 64 * 2**20


def keep_prompts(engines: Mapping[str, EngineConfig]) -> dict[str, EngineConfig]:
    """Have engines without a KV directory keep prompts in the user's cache; warn if there is no room."""
    from quire.system.user_cache import default_kv_dir

    chosen = {name: each for name, each in engines.items() if each.kv_dir is None and each.enable_prefix_caching}
    if not chosen:
        return dict(engines)
    directory = default_kv_dir()
    try:
        is_new = not directory.exists()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = min(_MOST_BYTES, int(shutil.disk_usage(directory).free * _DISK_SHARE))
    except OSError as error:
        logger.warning("prompts' KV is not kept on disk: %s; set --kv-dir, or --no-keep-kv", error)
        return dict(engines)
    if size < _LEAST_BYTES:
        logger.warning("prompts' KV is not kept on disk: %s is nearly full", directory)
        return dict(engines)
    if is_new:
        logger.info("prompts' KV is kept in %s, at most %s; --no-keep-kv: none", directory, format_size(size))
    found = dict(engines)
    for name, config in chosen.items():
        limit = config.kv_dir_size if config.changed("kv_dir_size") else size
        found[name] = replace(config, kv_dir=str(directory), kv_dir_size=limit, kv_dir_keep_prompts=True)
    return found
