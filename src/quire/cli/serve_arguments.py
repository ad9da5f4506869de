"""The arguments of `quire serve` as the start scripts of other engines write them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperCommand

logger = logging.getLogger("quire")

_SEVERAL = "--served-model-name"  # takes all that follows, up to the next option
_ANY = "any"
_REPLICAS = "--ray serves several replicas of a model"
_RANKS = "--tensor-parallel-size is all that is said about ranks on one machine, --ray about several"
_TOKEN_BUDGET = "oldest requests first, by --max-num-batched-tokens"
_LOG = "the log has a line a request, and never what was said"

#: Options of vLLM's that mean nothing here, or are so by nature: the value that they take ("" is none, `_ANY` is any,
#: else that one only), and what is done instead.
FOREIGN_OPTIONS = {
    "--async-scheduling": ("", "a step is scheduled when the one before it is done"),
    "--compilation-config": (_ANY, "models run as they are, and are not compiled"),
    "--data-parallel-size": ("1", _REPLICAS),
    "--disable-custom-all-reduce": ("", _RANKS),
    "--disable-frontend-multiprocessing": ("", "--no-engine-process puts everything into one process"),
    "--disable-log-requests": ("", _LOG),
    "--disable-log-stats": ("", "--log-interval says how often load is logged"),
    "--disable-uvicorn-access-log": ("", _LOG),
    "--distributed-executor-backend": (_ANY, _RANKS),
    "--download-dir": (_ANY, "HF_HOME in the environment says where models from the hub are kept"),
    "--enable-auto-tool-choice": ("", "tools are served without it; --tool-call-parser says how calls are read"),
    "--enable-chunked-prefill": ("", "prompts are always computed in chunks of --max-num-batched-tokens"),
    "--enable-request-id-headers": ("", "every answer has an X-Request-Id: the request's own, or a new one"),
    "--enforce-eager": ("", "models are always run eagerly"),
    "--generation-config": ("auto", "generation_config.json gives the defaults of sampling"),
    "--gpu-memory-utilization": (_ANY, "--kv-cache-memory sizes the KV pool; by default a share of what is free"),
    "--kv-cache-dtype": ("auto", "the KV cache has the model's dtype"),
    "--long-prefill-token-threshold": (_ANY, _TOKEN_BUDGET),
    "--max-long-partial-prefills": (_ANY, _TOKEN_BUDGET),
    "--max-num-partial-prefills": (_ANY, _TOKEN_BUDGET),
    "--max-seq-len-to-capture": (_ANY, "models are always run eagerly"),
    "--no-enable-log-requests": ("", _LOG),
    "--pipeline-parallel-size": ("1", "--tensor-parallel-size cuts a model over several devices"),
    "--scheduling-policy": (_ANY, "requests are ordered by their priority, and then by arrival"),
    "--tokenizer-mode": (_ANY, "tokenizer.json is read"),
    "--trust-remote-code": ("", "no code of a checkpoint is ever run"),
    "--uvicorn-log-level": (_ANY, _LOG),
}


class ServeCommand(TyperCommand):
    """Warns of options that mean nothing here, and takes several names after one --served-model-name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_own(args)))


def _own(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments as this command knows them.

    Raises:
        ValueError: an option of another engine has a value that cannot be had here.
    """
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if name in FOREIGN_OPTIONS:
            takes, instead = FOREIGN_OPTIONS[name]
            if takes and not equals:
                value = rest.pop(0) if rest else ""
            if takes not in ("", _ANY, value):
                raise ValueError(f"{name} {value} is not supported: {instead}; leave it out")
            logger.warning("%s means nothing here: %s", name, instead)
        elif argument == _SEVERAL and len(rest) > 1:
            yield from (_SEVERAL, rest.pop(0))
            while rest and not rest[0].startswith("-"):
                yield from (_SEVERAL, rest.pop(0))
        else:
            yield argument
