"""All meanings, and which of them say too nearly the same to stand in one passage."""

from train import tables
from train.world.meaning import read_meanings

MEANINGS = read_meanings("work", "goods", "ways", "people", "states")


def _alike() -> dict[str, frozenset[str]]:
    known = {meaning.name for meaning in MEANINGS}
    found: dict[str, frozenset[str]] = {}
    for block in tables.read("meanings/alike"):
        for line in block.lines:
            names = frozenset(line.text.split())
            if unknown := names - known:
                raise line.error(f"there are no meanings {sorted(unknown)}")
            for name in names:
                found[name] = found.get(name, frozenset()) | names
    return found


ALIKE = _alike()
"""Name of a meaning -> names of those that must not stand beside it."""
