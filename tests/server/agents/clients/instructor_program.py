"""instructor: every mode for OpenAI's API, and a second turn behind each."""

from __future__ import annotations

from typing import Any, Literal

import instructor
import openai
from instructor import Mode
from pydantic import BaseModel


class Report(BaseModel):
    """A report."""

    sky: Literal["clear", "grey"]


ASKED: list[Any] = [{"role": "user", "content": "The sky as JSON?"}]
MODES = [
    Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON, Mode.JSON_O1, Mode.MD_JSON, Mode.JSON_SCHEMA,
    Mode.RESPONSES_TOOLS, Mode.RESPONSES_TOOLS_WITH_INBUILT_TOOLS,
]  # fmt: skip
for mode in MODES:
    client = instructor.from_openai(openai.OpenAI(max_retries=0), mode=mode)
    messages = list(ASKED)
    for _ in range(2):
        report, raw = client.create_with_completion(
            model="scripted", messages=messages, response_model=Report, max_retries=1
        )
        assert isinstance(report, Report), (mode, report)
        if hasattr(raw, "output"):
            messages += [{"role": "assistant", "content": report.model_dump_json()}, *ASKED]
            continue
        message = raw.choices[0].message
        messages.append(message.to_dict())
        for call in message.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "noted"})
        messages += ASKED
    print(mode.name, "passed")
