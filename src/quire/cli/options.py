"""Options that are made from `EngineConfig`: every field is one, so that a new field needs no line here.

Knows how typer reads a signature; knows nothing about what a field means.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from quire.config import SIZES, EngineConfig

N = TypeVar("N", int, float)

_AS_TEXT = dict.fromkeys(SIZES, "SIZE")  # what EngineConfig reads itself, and how help names it


def engine_options(
    *, models: Sequence[str] = (), sweep: Sequence[str] = (), default_model: str | None = None
) -> Callable[[Callable[..., None]], Any]:
    """Give a command every field of `EngineConfig` as an option of the same name.

    The command takes what they make as its parameter `engine`; with `sweep` all combinations as a list `engines`, and
    with `models` a dict `engines` from the name that a model is served under. What the command line does not say comes
    from the environment (`EngineConfig.from_env`).

    Args:
        models: --model may be given several times, as SOURCE or NAME=SOURCE; without it these.
        sweep: integer fields that may be given as a list, such as 1,2,4.
        default_model: without --model; otherwise it must be given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            p
            for p in inspect.signature(command, eval_str=True).parameters.values()
            if p.name not in ("engine", "engines")
        ]
        options = [_option(field, is_list=field.name in sweep) for field in fields(EngineConfig)]
        if models:
            options[0] = _several_models(options[0], models)

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = {option.name: values.pop(option.name) for option in options}
            if models:
                chosen = given.pop("model") or os.environ.get("QUIRE_MODEL", ",".join(models)).split(",")
                named = _by_name(chosen)
                engines = {name: EngineConfig.from_env(**given, model=source) for name, source in named.items()}
                command(engines=engines, **values)
                return
            if given["model"] is None and "QUIRE_MODEL" not in os.environ:
                given["model"] = default_model
            if given["model"] is None and "QUIRE_MODEL" not in os.environ:
                raise ValueError(
                    "which model? Give --model a directory, a hub id, an embedded model such as quire-mini, or a preset"
                )
            if sweep:
                command(engines=_combinations(given, sweep), **values)
            else:
                command(engine=EngineConfig.from_env(**given), **values)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + options
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__  # typer would read the signature behind it
        return run

    return decorate


def integers(name: str, text: str) -> list[int]:
    """Numbers from text such as 1,2,4."""
    return _read(int, text.split(","), f"{name}={text!r} is not a list of integers such as 16 or 1,2,4")


def numbers(name: str, text: str) -> list[float]:
    """Numbers from text such as 0.5,1,2."""
    return _read(float, text.split(","), f"{name}={text!r} is not a list of numbers such as 0.5,1,2")


def integer_range(name: str, text: str) -> tuple[int, int]:
    """A range from text such as 64-512, or one number for both ends."""
    low, high = _read(int, _ends(text), f"{name}={text!r} is not a length such as 128 or a range such as 64-512")
    return low, high


def share_range(name: str, text: str) -> tuple[float, float]:
    """A range from text such as 0.1-0.9, or one number for both ends."""
    low, high = _read(float, _ends(text), f"{name}={text!r} is not a share such as 0.5 or a range such as 0.1-0.9")
    return low, high


def _ends(text: str) -> list[str]:
    low, _, high = text.partition("-")
    return [low, high or low]


def _read(kind: Callable[[str], N], parts: Sequence[str], complaint: str) -> list[N]:
    try:
        return [kind(part) for part in parts]
    except ValueError:
        raise ValueError(complaint) from None


def _option(field: Field[Any], *, is_list: bool) -> inspect.Parameter:
    annotation: Any = get_type_hints(EngineConfig)[field.name] | None
    metavar = None
    if field.name in _AS_TEXT or is_list:
        annotation, metavar = str | None, _AS_TEXT.get(field.name, "N[,N...]")
    text = field.metadata.get("help", "")
    if field.default not in (None, MISSING):
        text += f" (default: {str(field.default).lower() if isinstance(field.default, bool) else field.default})"
    option = typer.Option(help=text, metavar=metavar, show_default=False)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation, option]
    )


def _several_models(option: inspect.Parameter, models: Sequence[str]) -> inspect.Parameter:
    text = (
        "A directory, a hub id, an embedded name or a preset; NAME=SOURCE serves it under that name. Several serve "
        f"several models, the first of them by default. (default: {' and '.join(models)})"
    )
    described = typer.Option(help=text, metavar="[NAME=]SOURCE", show_default=False)
    return option.replace(annotation=Annotated[list[str] | None, described])


def _by_name(chosen: Sequence[str]) -> dict[str, str]:
    """Served name -> source, in order."""
    found: dict[str, str] = {}
    for text in chosen:
        name, equals, source = text.partition("=")
        if not equals or "/" in name:  # a path may hold an equals sign
            name = source = text
        if not name or not source:
            raise ValueError(f"model={text!r} is neither SOURCE nor NAME=SOURCE")
        if name in found:
            raise ValueError(f"two models are named {name!r}; give one of them another name: --model NAME={source}")
        found[name] = source
    return found


def _combinations(given: dict[str, Any], sweep: Sequence[str]) -> list[EngineConfig]:
    lists = [integers(name, given[name]) if given[name] is not None else [None] for name in sweep]
    return [
        EngineConfig.from_env(**{**given, **dict(zip(sweep, values, strict=True))})
        for values in itertools.product(*lists)
    ]
