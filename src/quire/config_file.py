"""YAML configuration files: the options of `quire serve` by the same names, and a list of models.

Knows settings but no server, since a cluster reads the same files.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from quire.config import EngineConfig
from quire.settings import EnvironmentSettings, Settings, option_name, setting_fields

S = TypeVar("S", bound=Settings)
_MODELS = ("model", "models")  #: keys of the list of models
_NAME = "name"  #: key of a model's served name


@dataclass(frozen=True)
class ConfigFile:
    """The contents of a file, which the environment overrides. Values have the types of their fields; `make` checks
    ranges."""

    origin: str  #: name of the file, for messages
    settings: Mapping[type[Settings], Mapping[str, Any]]  #: values by kind and field
    engine: Mapping[str, Any]  #: values for all models, by field of `EngineConfig`
    models: Mapping[str, Mapping[str, Any]]  #: served name -> the model's own fields, including `model`

    def make(self, kind: type[S], **given: Any) -> S:
        """Make settings of a kind given to `read_config`; values from the command line go first."""
        found = self.settings.get(kind, {})
        if issubclass(kind, EnvironmentSettings):
            return kind.from_env(found, **given)
        return kind(**{**found, **given})

    def make_engines(
        self, default_models: Sequence[str] = (), *, models: Sequence[str] = (), **given: Any
    ) -> dict[str, EngineConfig]:
        """Return the engines to run by served name, in order. `models` (SOURCE or NAME=SOURCE) replace all others;
        `given` goes to all models. Raises ValueError if a value is invalid, or two models have one name."""
        if not models and (named := os.environ.get("QUIRE_MODEL")) is not None:
            models = named.split(",")
        if not models and not self.models:
            models = default_models
        chosen = {name: {"model": source} for name, source in by_name(models).items()} if models else self.models
        if not chosen:
            raise ValueError(f"{self.origin} names no model; add one: 'model: SOURCE', or a list of them")
        made = {}
        for name, own in chosen.items():
            made[name] = EngineConfig.from_env({**self.engine, **own}, **{**given, "model": own["model"]})
        return made


NO_FILE = ConfigFile("no file", {}, {}, {})


def read_config(source: Path | str | Mapping[str, Any], kinds: Sequence[type[Settings]]) -> ConfigFile:
    """Read options of these kinds and of `EngineConfig` from a YAML file, or from a mapping of the same form. A
    ValueError names the file and the key that is unknown or has a value of the wrong type."""
    import yaml

    if isinstance(source, Mapping):
        return _parse(source, kinds, "the configuration")
    path = Path(source).expanduser()
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _strict_loader())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # besides its own errors, PyYAML raises those of invalid dates and numbers
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    return _parse({} if values is None else values, kinds, str(path))


def _parse(values: Any, kinds: Sequence[type[Settings]], origin: str) -> ConfigFile:
    if not isinstance(values, Mapping):
        raise ValueError(f"{origin} should have lines such as 'max-queue: 200', and is {type(values).__name__}")
    every_kind: tuple[type[Settings], ...] = (EngineConfig, *kinds)
    fields = {option_name(each): (kind, each) for kind in every_kind for each in setting_fields(kind)}
    settings: dict[type[Settings], dict[str, Any]] = {kind: {} for kind in every_kind}
    models: dict[str, dict[str, Any]] = {}
    for name, (key, value) in _by_option(values, origin).items():
        if name in _MODELS:
            if models:
                raise ValueError(f"{origin} has both 'model' and 'models'; make one list of them")
            models = _read_models(value, origin)
        elif name not in fields:
            raise ValueError(f"{origin}: {key!r} is no option{_nearest(key, list(fields))}")
        elif value is not None:
            kind, each = fields[name]
            settings[kind][each.name] = _typed(kind, each, value, f"{origin}: {key}")
    return ConfigFile(origin, settings, settings.pop(EngineConfig), models)


def by_name(chosen: Sequence[str]) -> dict[str, str]:
    """Parse SOURCE or NAME=SOURCE into sources by served name. Raises ValueError for an empty part or a repeated
    name."""
    found: dict[str, str] = {}
    for text in chosen:
        name, equals, source = text.partition("=")
        if not equals or text.startswith(("/", "./", "../", "~")) or os.path.exists(text):
            name = source = text
        if not name or not source:
            raise ValueError(f"model={text!r} is neither SOURCE nor NAME=SOURCE")
        if name in found:
            raise ValueError(f"two models are named {name!r}; give one of them another name: --model NAME={source}")
        found[name] = source
    return found


def _read_models(value: Any, origin: str) -> dict[str, dict[str, Any]]:
    """Read models by served name; each is a text or a mapping with its own options."""
    fields = {option_name(each): each for each in setting_fields(EngineConfig)}
    found: dict[str, dict[str, Any]] = {}
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):
            ((name, source),) = by_name([entry]).items()
            own: dict[str, Any] = {}
        elif isinstance(entry, Mapping):
            options = _by_option(entry, origin)
            place = f"{origin}, in a model"
            for option, (key, _) in options.items():
                if option != _NAME and option not in fields:
                    raise ValueError(f"{place}: {key!r} is no option of a model{_nearest(key, [*fields, _NAME])}")
            _, source = options.pop("model", ("", None))
            if not isinstance(source, str):
                raise ValueError(f"{place}: 'model' should say which, as in 'model: quire-mini', and is {source!r}")
            _, name = options.pop(_NAME, ("", source))
            if not isinstance(name, str) or not name:
                raise ValueError(f"{place}: name={name!r} is not a text")
            own = {
                fields[option].name: _typed(EngineConfig, fields[option], each, f"{place}: {key}")
                for option, (key, each) in options.items()
                if each is not None
            }
        else:
            raise ValueError(f"{origin}: a model is a text or a mapping with 'model: SOURCE', and not {entry!r}")
        if name in found:
            raise ValueError(f"{origin}: two models are named {name!r}; give one of them another 'name'")
        found[name] = {"model": source, **own}
    if not found:
        raise ValueError(f"{origin}: the list of models is empty; name one, or leave it out")
    return found


def _by_option(values: Mapping[Any, Any], origin: str) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise ValueError(f"{origin}: {key!r} is no option")
        name = _parameter_name(key)
        if name in found:
            raise ValueError(
                f"{origin} has {key!r} and {found[name][0]!r}, which are one option; leave one of them out"
            )
        found[name] = key, value
    return found


def _parameter_name(key: str) -> str:
    return key.removeprefix("--").replace("-", "_")


def _nearest(key: str, known: Sequence[str]) -> str:
    """Suggest an option for an unknown key, in the key's style of dashes or underscores."""
    name = _parameter_name(key)

    def shown(option: str) -> str:
        return option if "_" in key else option.replace("_", "-")

    if name.startswith("no_") and name[3:] in known:
        return f"; write '{shown(name[3:])}: false'"
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {shown(close[0])!r}?" if close else ""


def _typed(kind: type[Settings], each: Field[Any], value: Any, place: str) -> Any:
    hint = get_type_hints(kind)[each.name]
    types = get_args(hint) or (hint,)
    if Ellipsis in types:
        texts = value if isinstance(value, list) else [value]
        if all(isinstance(text, str) for text in texts):
            return tuple(texts)
        raise ValueError(f"{place} is {value!r}; it should be a text or a list of texts (in quotes, where need be)")
    if bool in types:
        expected, fits = "true or false", isinstance(value, bool)
    elif isinstance(value, bool):
        expected, fits = "a text, in quotes" if str in types or Path in types else "a number", False
    elif "read" in each.metadata:
        expected, fits = "a text or a whole number", isinstance(value, (str, int))
    elif int in types:
        expected, fits = "a whole number", isinstance(value, int)
    elif float in types:
        expected, fits = "a number", isinstance(value, (int, float))
    else:
        expected, fits = "a text, in quotes", isinstance(value, str)
    if not fits:
        raise ValueError(f"{place} is {value!r}; it should be {expected}")
    return Path(value) if Path in types else value


def _strict_loader() -> Any:
    """PyYAML's safe loader with an error for duplicate keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: Any) -> Any:  # before merged keys (<<) are added
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a key is not a text", key.start_mark)
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} comes twice", key.start_mark)
                seen.add(key.value)
            return node

    return Loader
