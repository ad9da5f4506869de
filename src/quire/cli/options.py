"""Options that are made from settings: every field with help is one, so that a new field needs no line here."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from quire.config import EngineConfig
from quire.config_file import NO_FILE, ConfigFile, read_config
from quire.settings import Settings, integers, option_name, setting_fields


def check_json(path: Path | None) -> Path | None:
    """The file that figures go to: what is wrong with it shows before they are measured."""
    if path is not None:
        from quire.bench.files import check_writable

        check_writable(path)
    return path


def _check_plot(path: Path | None) -> Path | None:
    if path is not None:
        from quire.bench.plots import check_plot

        check_plot(path)
    return path


# Of commands with figures.
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", callback=check_json, help="Write the figures for programs.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", callback=_check_plot, help="Draw a picture (PNG, SVG or PDF).")
]

_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="QUIRE_CONFIG",
            help="A YAML file with any of these options, by the same names, and a list of models: docs/serving.md. "
            "The command line and the environment come before it.",
            show_default=False,
        ),
    ],
)


def options(
    *,
    models: Sequence[str] = (),
    sweep: Sequence[str] = (),
    default_model: str | None = None,
    without: Sequence[str] = (),
    has_config: bool = False,
) -> Callable[[Callable[..., None]], Any]:
    """Give a command an option for every setting of the dataclasses (`Settings`) among its parameters.

    Of `EngineConfig` a parameter may also be a list, of all combinations with `sweep`; or a dict with `models`, from
    the name that a model is served under. What the command line does not say comes from the environment, where the
    dataclass reads it.

    Args:
        models: --model may be given several times, as SOURCE or NAME=SOURCE; without it these.
        sweep: integer fields of the engine that may be given as a list, such as 1,2,4.
        default_model: without --model; otherwise it must be given.
        without: fields of the engine that are no option here, since the command says them in another way.
        has_config: --config names a file with any of the options (`config_file.py`); goes with `models`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        kinds = {p.name: kind for p in parameters if (kind := _settings_in(p.annotation)) is not None}
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters if p.name not in kinds]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            path = values.pop("config", None) if has_config else None
            others = [kind for kind in kinds.values() if kind is not EngineConfig]
            file = NO_FILE if path is None else read_config(path, others)
            made = {name: _make(kind, _take(kind, values), file) for name, kind in kinds.items()}
            command(**values, **made)

        def _make(kind: type[Settings], given: dict[str, Any], file: ConfigFile) -> Any:
            if kind is not EngineConfig:
                return file.make(kind, **given)
            if models:
                return file.make_engines(models, models=given.pop("model", ()), **given)
            return _engines(given, sweep, default_model)

        # An engine has many options, and the same under every command: they come last.
        made = [_CONFIG] if has_config else []
        made += [
            _option(kind, field)
            for kind in kinds.values()
            if kind is not EngineConfig
            for field in setting_fields(kind)
        ]
        if EngineConfig in kinds.values():
            shown = [field for field in setting_fields(EngineConfig) if field.name not in without]
            own += [_engine_option(field, models, sweep) for field in shown]
        arguments = [*made, *own]
        run.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in arguments}
        del run.__wrapped__  # typer would read the signature behind it
        return run

    return decorate


def _settings_in(annotation: Any) -> type[Settings] | None:
    """The dataclass that a parameter is annotated with, be it of one, a list or a dict."""
    kind = get_args(annotation)[-1] if get_origin(annotation) in (list, dict) else annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _take(kind: type[Settings], values: dict[str, Any]) -> dict[str, Any]:
    """What the command line says of these settings, by the names of their fields; it leaves the other values."""
    given = {field.name: values.pop(option_name(field), None) for field in setting_fields(kind)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None and value != []
    }


def _engines(given: dict[str, Any], sweep: Sequence[str], default_model: str | None) -> Any:
    """One config, or all combinations of what is swept."""
    if "model" not in given and "QUIRE_MODEL" not in os.environ:
        if default_model is None:
            raise ValueError(
                "which model? Give --model a directory, a hub id, an embedded model such as quire-mini, or a preset"
            )
        given["model"] = default_model
    if not sweep:
        return EngineConfig.from_env(**given)
    lists = [_integers(name, given[name]) if name in given else [None] for name in sweep]
    return [
        EngineConfig.from_env(**given | dict(zip(sweep, values, strict=True))) for values in itertools.product(*lists)
    ]


def _integers(name: str, text: str) -> Sequence[int]:
    try:
        return integers(text)
    except ValueError as error:
        raise ValueError(f"{name}={error}") from None


def _option(kind: type[Settings], field: Field[Any], **changes: Any) -> inspect.Parameter:
    """The option of a field. Its default is None, so that it can be told from what was given."""
    rules = {"annotation": get_type_hints(kind)[field.name], **field.metadata, **changes}
    annotation = rules["annotation"]
    if rules.get("read") is not None:
        annotation = str
    elif get_origin(annotation) is tuple:
        annotation = list[get_args(annotation)[0]]  # type: ignore[misc]
    is_required = field.default is MISSING and kind is not EngineConfig
    option = typer.Option(
        *(["--" + option_name(field).replace("_", "-")] if rules.get("is_flag") else []),
        help=rules["help"] + _describe_default(field),
        metavar=rules["metavar"] or ("FILE" if Path in (annotation, *get_args(annotation)) else None),
        envvar=rules.get("envvar"),
        show_envvar="envvar" in rules,
        show_default=False,
    )
    return inspect.Parameter(
        option_name(field),
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if is_required else None,
        annotation=Annotated[annotation if is_required else annotation | None, option],
    )


def _describe_default(field: Field[Any]) -> str:
    if field.default in (None, MISSING, ()) or field.metadata.get("is_flag"):
        return ""
    default = field.default
    shown = ", ".join(default) if isinstance(default, tuple) else str(default)
    return f" (default: {shown.lower() if isinstance(default, bool) else shown})"


def _engine_option(field: Field[Any], models: Sequence[str], sweep: Sequence[str]) -> inspect.Parameter:
    if field.name == "model" and models:
        text = (
            "A directory, a hub id, an embedded name or a preset; NAME=SOURCE serves it under that name, which may "
            "have slashes. Several serve several models, the first of them by default. "
            f"(default: {' and '.join(models)})"
        )
        return _option(EngineConfig, field, help=text, metavar="[NAME=]SOURCE", annotation=list[str])
    if field.name in sweep:
        return _option(EngineConfig, field, annotation=str, metavar="N[,N...]")
    return _option(EngineConfig, field)
