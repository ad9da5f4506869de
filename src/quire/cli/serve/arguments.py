"""Accept `quire serve` arguments in the form that start scripts of other engines use."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

from quire.cli.command import Command
from quire.cli.serve.foreign_options import ANY, IGNORED, REFUSED, RENAMED, VALUES

logger = logging.getLogger("quire")

_SEVERAL = "--served-model-name"  # takes all arguments up to the next option


class ServeCommand(Command):
    """Translate other engines' options, and accept several names after --served-model-name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for each in self.params for name in (*each.opts, *each.secondary_opts)}
        return super().parse_args(ctx, list(_own(args, known)))


def _own(arguments: Sequence[str], known: set[str]) -> Iterator[str]:
    """Yield the arguments that this command knows. Raises ValueError for an unsupported option or value."""
    rest = list(arguments)
    while rest:
        given = rest.pop(0)
        name, equals, value = given.partition("=")
        dashed = name.replace("_", "-") if name.startswith("--") else name
        name = RENAMED.get(dashed, dashed)
        ignored = name.partition(".")[0]  # a field of a JSON value, such as --compilation-config.level
        if ignored.startswith("--no-") and IGNORED.get("--" + ignored[5:], (ANY,))[0] == "":
            ignored = "--" + ignored[5:]
        if ignored in IGNORED and name not in known:
            takes, instead = IGNORED[ignored]
            if takes and not equals:
                value = rest.pop(0) if rest and not re.match(r"-\D", rest[0]) else ""
            if takes not in ("", ANY, value):
                raise ValueError(f"{name} {value} is not supported: {instead}; leave it out")
            logger.warning("%s has no effect: %s", name, instead)
        elif name in REFUSED:
            value = value if equals or not rest else rest.pop(0)
            if name != "--tokenizer" or arguments.count(value) < 2:  # the model's own
                raise ValueError(f"{name} is not supported: {REFUSED[name]}")
        elif name == _SEVERAL and not equals and len(rest) > 1:
            yield from (_SEVERAL, rest.pop(0))
            while rest and not rest[0].startswith("-"):
                yield from (_SEVERAL, rest.pop(0))
        elif name in VALUES or dashed == "--allowed-origins":
            value = value if equals or not rest else rest.pop(0)
            for each in _list(value) if dashed == "--allowed-origins" else [VALUES[name].get(value, value)]:
                yield from () if each is None else (name, each)
        else:
            yield name + equals + value if name in known else given


def _list(text: str) -> list[str]:
    """Parse a JSON list of texts, or one text."""
    try:
        found = json.loads(text)
    except ValueError:
        return [text]
    return [str(each) for each in found] if isinstance(found, list) else [text]
