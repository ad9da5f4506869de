"""Read a checkpoint's `quantization_config`: AWQ, GPTQ, AutoRound, compressed-tensors, FP8, MXFP4."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.models.encodings import QuantizedWeights
from quire.models.model_config import ConfigReader, ModelConfigError, UnsupportedModelError


def read_quantized_weights(config: ConfigReader) -> QuantizedWeights | None:
    """Read a config's `quantization_config`; None without one. Raises UnsupportedModelError for other methods."""
    values = config.get("quantization_config", config.get("compression_config"))
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise ModelConfigError(f"the config's quantization_config is {values!r:.100}; expected an object")
    method = str(values.get("quant_method", "compressed-tensors" if "config_groups" in values else "no method"))
    readers = {
        "awq": _read_awq, "gptq": _read_gptq, "auto-round": _read_auto_round, "compressed-tensors": _read_compressed,
        "fp8": _read_fp8,
        "mxfp4": lambda reader: QuantizedWeights("mxfp4", 4, (1, 32), scale_name="scales", ignored=_ignored(reader)),
    }  # fmt: skip
    _refuse_if(method not in readers, method, f"not one of {', '.join(readers)}")
    return readers[method](ConfigReader(values))


def _refuse_if(condition: Any, method: str, what: str) -> None:
    if condition:
        problem = f"a checkpoint quantized with {method:.100} ({what}) is not supported"
        raise UnsupportedModelError(f"{problem}; use one in bfloat16, float16 or float32, or a GGUF file")


def _group_size(reader: ConfigReader, default: int = 128) -> int:
    """Return the inputs per scale; 0 for all of them, which configs write as -1."""
    return 0 if reader.get("group_size", default) == -1 else reader.integer("group_size", default)


def _ignored(reader: ConfigReader, field: str = "modules_to_not_convert") -> tuple[str, ...]:
    names = reader.get(field, [])
    try:
        if isinstance(names, list) and all(re.compile(name) for name in names):
            return tuple(names)
    except (TypeError, re.error):
        pass
    raise ModelConfigError(f"the config's {field} is {names!r:.100}; expected a list of names or 're:' patterns")


def _read_awq(reader: ConfigReader) -> QuantizedWeights:
    bits, version = reader.integer("bits", reader.integer("w_bit", 4)), str(reader.get("version", "gemm")).lower()
    is_usual = bits == 4 and version == "gemm" and reader.flag("zero_point", True)
    _refuse_if(not is_usual, "awq", f"other than 4 bits with zero points in version gemm: {bits} bits, {version:.100}")
    block = (1, _group_size(reader, reader.integer("q_group_size", 128)))
    return QuantizedWeights("awq", 4, block, True, False, "scales", _ignored(reader))


def _read_gptq(reader: ConfigReader) -> QuantizedWeights:
    bits, layout = reader.integer("bits", 4), reader.get("checkpoint_format", "gptq")
    _refuse_if(bits not in (4, 8) or layout not in ("gptq", "gptq_v2"), "gptq", f"{bits} bits, {layout!r:.100}")
    is_ordered, ignored = reader.flag("desc_act", False), _ignored(reader) + _in_floats(reader, "dynamic")
    return QuantizedWeights(layout, bits, (1, _group_size(reader)), True, is_ordered, "scales", ignored)


def _read_auto_round(reader: ConfigReader) -> QuantizedWeights:
    layout, number = str(reader.get("packing_format")), reader.get("data_type", "int")
    read = {"auto_gptq": _read_gptq, "auto_awq": _read_awq}.get(layout.removeprefix("auto_round:"))
    _refuse_if(read is None or number != "int", "auto-round", f"{layout:.100}, {number!r:.100}")
    assert read is not None
    form = read(reader)
    return replace(form, ignored=form.ignored + _in_floats(reader, "extra_config"))


def _in_floats(reader: ConfigReader, field: str) -> tuple[str, ...]:
    """Return the layers that rules by layer leave in floats. Others may only repeat what the config says of all."""
    rules = reader.get(field) or {}
    if not isinstance(rules, Mapping):
        raise ModelConfigError(f"the config's {field} is {rules!r:.100}; expected an object")
    ignored = []
    for layer, own in rules.items():
        stated = own if isinstance(own, Mapping) else {"": own}
        if layer.startswith("-:") or stated.get("bits") in (16, 32):
            ignored.append(f"re:{layer.removeprefix('-:')}")
            continue
        differs = any(reader.get(name) != value for name, value in stated.items())
        _refuse_if(differs, str(reader.get("quant_method")), f"rules by layer: {layer:.100}")
    return _ignored(ConfigReader({field: ignored}), field)


def _read_fp8(reader: ConfigReader) -> QuantizedWeights:
    number, block = reader.get("fmt", "e4m3"), reader.get("weight_block_size", [0, 0])
    _refuse_if(number not in ("e4m3", "float8_e4m3fn"), "fp8", f"{number!r:.100}")
    if not isinstance(block, list) or len(block) != 2 or not all(type(each) is int and each >= 0 for each in block):
        raise ModelConfigError(f"the config's weight_block_size is {block!r:.100}; expected two positive integers")
    ignored = _ignored(reader) + _ignored(reader, "ignored_layers")
    name = "weight_scale_inv" if any(block) else "weight_scale"
    return QuantizedWeights("fp8", 8, tuple(block), scale_name=name, ignored=ignored)


def _read_compressed(reader: ConfigReader) -> QuantizedWeights:
    layout, groups = str(reader.get("format")), reader.get("config_groups")
    listed = [*groups.values()] if isinstance(groups, Mapping) else []
    is_one = len(listed) == 1 and isinstance(listed[0], Mapping) and isinstance(listed[0].get("weights"), Mapping)
    _refuse_if(not is_one, "compressed-tensors", "more than one group of layers, or none")
    weights, targets = ConfigReader(listed[0]["weights"]), listed[0].get("targets", ["Linear"])
    bits, strategy = weights.integer("num_bits", 8), str(weights.get("strategy", "tensor"))
    is_float, has_zeros = weights.get("type", "int") == "float", not weights.flag("symmetric", True)
    blocks = {"tensor": (0, 0), "channel": (1, 0), "group": (1, _group_size(weights)), "block": (128, 128)}
    rows, size = blocks.get(strategy, (0, 1))
    known = {"pack-quantized": (False, (4, 8)), "int-quantized": (False, (8,)), "float-quantized": (True, (8,))}
    number, sizes = known.get(layout, (None, ()))
    is_known = number == is_float and bits in sizes and targets == ["Linear"] and (is_float or rows == 1)
    is_known = is_known and strategy in blocks and (layout == "pack-quantized" or not has_zeros)
    is_known = is_known and weights.get("block_structure", [128, 128]) == [128, 128]
    sparsity = reader.get("sparsity_config") or {"format": "dense"}
    is_changed = sparsity.get("format") != "dense" or reader.get("transform_config")
    what = f"{bits} bits by {strategy:.20} for {targets!r:.100} in format {layout:.30}, zero points: {has_zeros}"
    _refuse_if(not is_known, "compressed-tensors", what)
    _refuse_if(is_changed, "compressed-tensors", "sparse or transformed weights")
    is_ordered, method = weights.get("actorder") in ("group", True), "fp8" if is_float else layout
    return QuantizedWeights(method, bits, (rows, size), has_zeros, is_ordered, ignored=_ignored(reader, "ignore"))
