"""Chat templates with tool calls in the documented formats of three model families."""

from __future__ import annotations

from typing import Any

#: Hermes and Qwen: signatures in <tools>, calls in <tool_call>, results in <tool_response>, thoughts in <think>.
QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nCall them as <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content is string %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content.lstrip('\\n') if message.content }}
        {%- for call in message.tool_calls or [] %}
            {%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
    {%- if forced_thinking is defined %}{{- '<think>\\n' }}{%- endif %}
{%- endif %}
"""

#: Llama 3.1: tools in the first user message, one call per message as bare JSON, results with the role ipython.
LLAMA = """\
{{- bos_token }}
{%- set first = namespace(is_user=true) %}
{%- for message in messages %}
    {%- if message.role == 'user' and first.is_user and tools is not none %}
        {%- set first.is_user = false %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n\\nAnswer with {"name": ..., "parameters": {}}.\\n\\n' }}
        {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- elif message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|eot_id|>' }}
    {%- elif message.role == 'tool' or message.role == 'ipython' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
{#- <|python_tag|> begins calls of built-in tools -#}
"""

#: Mistral: tools before the last user's message, calls as an array, ids of nine letters or digits.
MISTRAL = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and (message == messages | selectattr('role', 'equalto', 'user') | list | last) %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, value in tool.function.items() if key != 'return' %}
                    {{- '"' + key + '": ' }}{{- value | tojson }}{{- ', ' if not loop.last }}
                {%- endfor %}
                {{- '}}' }}{{- ', ' if not loop.last }}
            {%- endfor %}
            {{- '][/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {%- set written = call.function | tojson %}
            {{- written[:-1] }}
            {%- if call.id is not defined or call.id | length != 9 %}
                {{- raise_exception('ids have nine letters or digits') }}
            {%- endif %}
            {{- ', "id": "' + call.id + '"}' }}{{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content | trim + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '"}' }}
        {{- '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""

FAMILIES = {"qwen": QWEN, "llama": LLAMA, "mistral": MISTRAL}

#: The text in which each family calls `weather` for Zürich.
ANSWERS = {
    "qwen": '<think>\nThey ask for weather.\n</think>\n\nI look.\n<tool_call>\n{"name": "weather", "arguments": '
    '{"city": "Zürich", "days": [1, 2]}}\n</tool_call>',
    "llama": '{"name": "weather", "parameters": {"city": "Zürich", "days": [1, 2]}}',
    "mistral": '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Zürich", "days": [1, 2]}}]',
}

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "description": "Tells the weather & <wind>.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "such as Zürich"}, "days": {"type": "array"}},
            "required": ["city"],
        },
    },
}
