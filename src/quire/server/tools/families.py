"""Which parser reads a model's answers: by its name, or by what the model's chat template writes."""

from __future__ import annotations

from quire.server.tools.hermes import HermesParser
from quire.server.tools.llama import LlamaParser
from quire.server.tools.mistral import MistralParser
from quire.server.tools.parser import ToolParser
from quire.server.tools.reasoning import ReasoningMarkers

AUTO, NONE = "auto", "none"
#: By name; the second name of a family is vLLM's.
TOOL_PARSERS: dict[str, type[ToolParser]] = {
    "hermes": HermesParser,
    "llama3": LlamaParser,
    "llama3_json": LlamaParser,
    "mistral": MistralParser,
}
_THINK = ReasoningMarkers("<think>", "</think>")
_MISTRAL = ReasoningMarkers("[THINK]", "[/THINK]")
REASONING_PARSERS: dict[str, ReasoningMarkers] = {
    "think": _THINK,
    "deepseek_r1": _THINK,
    "qwen3": _THINK,
    "mistral": _MISTRAL,
}


def tool_parser(name: str, template: str) -> type[ToolParser] | None:
    """The parser of this name; for `auto` that of the family whose chat template it is, None where that is unknown."""
    if name != AUTO:
        return TOOL_PARSERS.get(name)
    if "[TOOL_CALLS]" in template:
        return MistralParser
    if "<tool_call>" in template:
        # Qwen3-Coder and its like have XML inside, which is another family.
        return None if "<function=" in template else HermesParser
    if "<|python_tag|>" in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return LlamaParser
    return None


def reasoning_markers(name: str, template: str) -> ReasoningMarkers | None:
    """Those of this name; for `auto` those that the chat template knows, None where it knows none."""
    if name != AUTO:
        return REASONING_PARSERS.get(name)
    return next((found for found in (_THINK, _MISTRAL) if found.closing in template), None)
