"""Accept `quire serve` arguments in the form that start scripts of other engines use."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperCommand

logger = logging.getLogger("quire")

_SEVERAL = "--served-model-name"  # takes all arguments up to the next option
_ANY = "any"
_REPLICAS = "--ray serves several replicas of a model"
_RANKS = "--tensor-parallel-size sets the ranks on one machine, --ray serves several machines"
_TOKEN_BUDGET = "oldest requests first, by --max-num-batched-tokens"
_LOG = "the log has one line per request, without its content"

#: vLLM options without a meaning here -> (accepted value: "" for none, `_ANY`, or the only one; what happens instead).
FOREIGN_OPTIONS = {
    "--async-scheduling": ("", "each step is scheduled when the previous one has finished"),
    "--compilation-config": (_ANY, "models are not compiled"),
    "--data-parallel-size": ("1", _REPLICAS),
    "--disable-custom-all-reduce": ("", _RANKS),
    "--disable-frontend-multiprocessing": ("", "--no-engine-process runs everything in one process"),
    "--disable-log-requests": ("", _LOG),
    "--disable-log-stats": ("", "--log-interval sets the seconds between log lines of load"),
    "--disable-uvicorn-access-log": ("", _LOG),
    "--distributed-executor-backend": (_ANY, _RANKS),
    "--enable-auto-tool-choice": ("", "tools need no switch; --tool-call-parser selects the format of calls"),
    "--enable-chunked-prefill": ("", "prompts are always computed in chunks of --max-num-batched-tokens"),
    "--enable-request-id-headers": ("", "every answer has an X-Request-Id, the request's own or a new one"),
    "--enforce-eager": ("", "models always run eagerly"),
    "--generation-config": ("auto", "generation_config.json sets sampling defaults"),
    "--gpu-memory-utilization": (_ANY, "--kv-cache-memory sizes the KV pool; by default a share of free memory"),
    "--kv-cache-dtype": ("auto", "the KV cache has the model's dtype"),
    "--long-prefill-token-threshold": (_ANY, _TOKEN_BUDGET),
    "--max-long-partial-prefills": (_ANY, _TOKEN_BUDGET),
    "--max-num-partial-prefills": (_ANY, _TOKEN_BUDGET),
    "--max-seq-len-to-capture": (_ANY, "models always run eagerly"),
    "--no-enable-log-requests": ("", _LOG),
    "--pipeline-parallel-size": ("1", "--tensor-parallel-size splits a model over several devices"),
    "--scheduling-policy": (_ANY, "requests are ordered by priority, then by arrival"),
    "--tokenizer-mode": (_ANY, "tokenizer.json is read"),
    "--trust-remote-code": ("", "code of a checkpoint is never run"),
    "--uvicorn-log-level": (_ANY, _LOG),
}


class ServeCommand(TyperCommand):
    """Warn about options without a meaning here, and accept several names after --served-model-name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_own(args)))


def _own(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments that this command knows. Raises ValueError for an unsupported value of a foreign option."""
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
            logger.warning("%s has no effect: %s", name, instead)
        elif argument == _SEVERAL and len(rest) > 1:
            yield from (_SEVERAL, rest.pop(0))
            while rest and not rest[0].startswith("-"):
                yield from (_SEVERAL, rest.pop(0))
        else:
            yield argument
