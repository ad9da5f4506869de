"""Derive command-line options from settings: every field with a help text becomes an option."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from quire.cli.panels import PANEL_BY_OPTION
from quire.config import EngineConfig, format_size
from quire.config_file import NO_FILE, read_config
from quire.settings import Settings, integers, option_name, parse_size, setting_fields


def check_json(path: Path | None) -> Path | None:
    """Refuse an unwritable file before anything is measured."""
    if path is not None:
        from quire.bench.files import check_writable

        check_writable(path)
    return path


def _check_plot(path: Path | None) -> Path | None:
    if path is not None:
        from quire.bench.plots import check_plot

        check_plot(path)
    return path


# Options of commands that measure.
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", callback=check_json, help="Write the figures as JSON.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", callback=_check_plot, help="Draw a plot (PNG, SVG or PDF).")
]

MODEL_HELP = "A directory, a URL, a hub id, an embedded name or a preset."
_type_hints = functools.cache(get_type_hints)  # of a class, in a millisecond
_ARGUMENT = "models_or_model"  #: parameter of the argument

READ_AGAIN = "quire.read_again"  #: key in a context's `meta` of a function that reads --config again
_CONFIG_HELP = (
    "A YAML file with any of these options and a list of models. The command line and the environment override it."
)
_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[Path | None, typer.Option(metavar="FILE", envvar="QUIRE_CONFIG", help=_CONFIG_HELP)],
)


def options(
    *,
    models: Sequence[str] = (),
    sweep: Sequence[str] = (),
    default_model: str | None = None,
    without: Sequence[str] = (),
    has_config: bool = False,
    has_argument: bool = False,
) -> Callable[[Callable[..., None]], Any]:
    """Give a command an option for every field of the `Settings` dataclasses among its parameters.

    A parameter of `EngineConfig` may be a list (one config for each combination of `sweep`) or a dict by served name
    (with `models`). Missing values come from the environment.

    Args:
        models: default models; --model may then be repeated, as SOURCE or NAME=SOURCE.
        sweep: integer engine fields that accept a list, such as 1,2,4.
        default_model: model without --model; None makes the option mandatory.
        without: engine fields that are no options of this command.
        has_config: add --config with a file of options; needs `models`.
        has_argument: the model is also an argument; with `models`, several ones are.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        kinds = {p.name: kind for p in parameters if (kind := _settings_in(p.annotation)) is not None}
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters if p.name not in kinds]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            path = values.pop("config", None) if has_config else None
            _use_argument(values)
            given = {name: _pop_given(kind, values) for name, kind in kinds.items()}
            make = functools.partial(_make_all, kinds, given, path, models, sweep, default_model)
            made = make()
            if path is not None:
                values["ctx"].meta[READ_AGAIN] = make
            if not models:
                _check_models(made)
            command(**values, **made)

        # The many engine options, equal for all commands, come last.
        made = [_CONFIG] if has_config else []
        made += [_model_argument(bool(models))] if has_argument else []
        others = [kind for kind in kinds.values() if kind is not EngineConfig]
        made += [_option(kind, field) for kind in others for field in setting_fields(kind)]
        if EngineConfig in kinds.values():
            shown = [field for field in setting_fields(EngineConfig) if field.name not in without]
            own += [_engine_option(field, models, sweep) for field in shown]
        arguments = [*made, *own]
        run.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in arguments}
        del run.__wrapped__  # typer would read the wrapped signature
        return run

    return decorate


def _model_argument(is_list: bool) -> inspect.Parameter:
    argument = typer.Argument(
        metavar="[NAME=]MODEL" if is_list else "MODEL", help=f"{MODEL_HELP} The same as --model.", show_default=False
    )
    annotation: Any = list[str] if is_list else str
    annotation = Annotated[annotation | None, argument]
    return inspect.Parameter(_ARGUMENT, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def check_model(name: str | None) -> str | None:
    """Refuse a model that is not there, before the engine is imported."""
    from quire.loading.source import find_model

    if name is not None:
        find_model(name)
    return name


def _check_models(made: Mapping[str, Any]) -> None:
    """Refuse models that are not there or not supported, before the engine is imported."""
    from quire.loading.source import find_model

    if not any(getattr(each, "url", None) for each in made.values()):
        for config in made.get("engines") or [made.get("engine")]:
            if config is not None and (source := find_model(config.model)) is not None:
                source.check_architecture()


def _use_argument(values: dict[str, Any]) -> None:
    """Move the models that are given as arguments to the values of --model."""
    if given := values.pop(_ARGUMENT, None):
        values["model"] = [*given, *(values["model"] or ())] if isinstance(given, list) else given
        if "ctx" in values:
            values["ctx"].params["model"] = values["model"]


def _settings_in(annotation: Any) -> type[Settings] | None:
    """Return the settings class in an annotation: itself, a list or a dict of it."""
    kind = get_args(annotation)[-1] if get_origin(annotation) in (list, dict) else annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _pop_given(kind: type[Settings], values: dict[str, Any]) -> dict[str, Any]:
    """Remove these settings' values from `values`, and return the given ones by field name."""
    given = {field.name: values.pop(option_name(field), None) for field in setting_fields(kind)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None and value != []
    }


def _make_all(
    kinds: Mapping[str, type[Settings]],
    given: Mapping[str, dict[str, Any]],
    path: Path | None,
    models: Sequence[str],
    sweep: Sequence[str],
    default_model: str | None,
) -> dict[str, Any]:
    """Make a command's settings from its options and the file at `path`."""
    others = [kind for kind in kinds.values() if kind is not EngineConfig]
    file, made = NO_FILE if path is None else read_config(path, others), dict[str, Any]()
    for name, kind in kinds.items():
        values = dict(given[name])
        if kind is not EngineConfig:
            made[name] = file.make(kind, **values)
        elif models:
            made[name] = file.make_engines(models, models=values.pop("model", ()), **values)
        else:
            made[name] = _engines(values, sweep, default_model)
    return made


def _engines(given: dict[str, Any], sweep: Sequence[str], default_model: str | None) -> Any:
    """Return one config, or one for each combination of the swept fields."""
    if "model" not in given and "QUIRE_MODEL" not in os.environ:
        if default_model is None:
            raise ValueError(
                "no model is given; name a directory, a hub id, an embedded model such as quire-mini, or a preset "
                "with --model"
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
    """Return the option of a field; its default None distinguishes absent values."""
    rules = {"annotation": _type_hints(kind)[field.name], **field.metadata, **changes}  # type: ignore[arg-type]
    annotation = rules["annotation"]
    if rules.get("read") is not None:
        annotation = str
    elif get_origin(annotation) is tuple:
        annotation = list[get_args(annotation)[0]]  # type: ignore[misc]
    is_required = field.default is MISSING and kind is not EngineConfig
    default = describe_default(field)
    option = typer.Option(
        *(["--" + option_name(field).replace("_", "-")] if rules.get("is_flag") else []),
        help=rules["help"] + (f" (default: {default})" if default and not rules.get("is_flag") else ""),
        metavar=_metavar(rules, annotation),
        rich_help_panel=PANEL_BY_OPTION.get(option_name(field)),
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


def _metavar(rules: Mapping[str, Any], annotation: Any) -> str | None:
    if rules["metavar"] is None and len(choices := "|".join(rules.get("choices", ()))) in range(1, 24):
        return choices
    return rules["metavar"] or ("FILE" if Path in (annotation, *get_args(annotation)) else None)


def describe_default(field: Field[Any]) -> str:
    """Return the default value as a user would write it; empty if there is none."""
    default = field.default
    if default in (None, MISSING, (), ""):
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    if field.metadata.get("read") is parse_size and isinstance(default, int):
        return format_size(default).replace(".00", "").replace(" ", "")
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _engine_option(field: Field[Any], models: Sequence[str], sweep: Sequence[str]) -> inspect.Parameter:
    if field.name == "model" and models:
        text = (
            "A directory, a URL, a hub id, an embedded name or a preset; NAME=SOURCE serves it under that name. May be "
            "repeated; requests without a model go to the first one. "
            f"(default: {' and '.join(models)})"
        )
        return _option(EngineConfig, field, help=text, metavar="[NAME=]SOURCE", annotation=list[str])
    if field.name in sweep:
        return _option(EngineConfig, field, annotation=str, metavar="N[,N...]")
    return _option(EngineConfig, field)
