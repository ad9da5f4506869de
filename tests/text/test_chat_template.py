"""Conversations are rendered as by `transformers`, and errors are explained."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from quire.text.chat_template import answer_lead, read_chat_template, render
from quire.text.tokenizer import Tokenizer
from quire.text.tokenizer_process import IsolatedTokenizer

CHATML = (
    "{%- if messages[0]['role'] != 'system' %}{{ bos_token }}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    "{% for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TRIMMING = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m['content'] | trim }}{{ eos_token }}{% endgeneration %}{% else %}[INST] {{ m['content'] | trim }} [/INST]"
    "{% endif %}{% endfor %}"
)
WITH_TOOLS = (
    "{%- set ns = namespace(count=0) -%}{% for tool in tools or [] %}{{ tool | tojson(indent=2) }}\n{% endfor %}"
    "{% for d in documents or [] %}{{ d.title }}: {{ d.text }}\n{% endfor %}"
    "{% for m in messages %}{% if m.role == 'skip' %}{% continue %}{% endif %}{% set ns.count = ns.count + 1 %}"
    "{{ ns.count }}. {{ m.content | tojson }}\n{% endfor %}{% if thinking is defined and thinking %}<think>{% endif %}"
)
CHAT = [
    {"role": "user", "content": " 안녕 & <hi> "},
    {"role": "assistant", "content": "Hello there "},
    {"role": "user", "content": "Bye"},
]
TOOLS = [{"type": "function", "function": {"name": "날씨", "parameters": {"type": "object", "properties": {}}}}]
WriteModelDir = Callable[..., Path]
Backends = dict[str, tokenizers.Tokenizer]


@pytest.fixture(scope="module")
def theirs(backends: Backends) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=backends["byte_level"], bos_token="<s>", eos_token="</s>")


NAMES = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("template", [CHATML, TRIMMING, WITH_TOOLS])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"tools": TOOLS, "thinking": True}, {"documents": [{"title": "é", "text": "x"}]}]
)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_conversations_look_as_in_transformers(
    theirs: Any, template: str, length: int, options: dict[str, Any], add_generation_prompt: bool
) -> None:
    expected = theirs.apply_chat_template(
        CHAT[:length],
        chat_template=template,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
        **options,
    )
    prompted = {"special_tokens": NAMES, "add_generation_prompt": add_generation_prompt}
    ours = render(CHAT[:length], template, variables=options, **prompted)
    assert ours == expected


@pytest.mark.parametrize("template", [CHATML, TRIMMING])
@pytest.mark.parametrize("content", ["Sure, the", "Sure, the ", "  x\n", "the the"])
def test_the_last_message_can_be_left_open(theirs: Any, template: str, content: str) -> None:
    chat = [*CHAT[:1], {"role": "assistant", "content": content}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    expected = theirs.apply_chat_template(chat, chat_template=template, tokenize=False, **options)
    assert render(chat, template, special_tokens=NAMES, **options) == expected


def test_content_parts_are_joined_for_templates_that_take_strings() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in render([{"role": "user", "content": parts}], CHATML)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% for part in m['content'] %}({{ part.text }}){% endfor %}{% endfor %}",
        "{% for m in messages %}{% set content = m.content %}{% if content is string %}{{ content }}{% else %}"
        "{% for part in content %}({{ part['text'] }}){% endfor %}{% endif %}{% endfor %}",
        "{% macro show(content) %}{% for p in content %}({{ p.text }}){% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    ],
)
def test_templates_that_go_through_parts_get_parts(template: str) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render([{"role": "user", "content": parts}], template) == "(one)(two)"


def test_continuing_works_with_content_parts() -> None:
    chat = [{"role": "assistant", "content": [{"type": "text", "text": "So,"}]}]
    text = render(chat, CHATML, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nSo,")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        (["hi"], r"messages\[0\] must be an object with a role"),
        ([{"content": "hi"}], r"messages\[0\] must be an object with a role"),
        ([{"role": "user", "content": 7}], r"messages\[0\]\.content must be a string or a list"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            r"messages\[0\]\.content\[0\] is of type 'image_url'; Quire serves text only",
        ),
    ],
)
def test_conversations_that_are_none_are_refused(messages: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(messages, CHATML)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refused the conversation: roles must alternate"),
        ("{% for m in messages %}", "chat template is broken"),
        ("{{ 1 / 0 }}", "failed on the conversation: ZeroDivisionError"),
        ("{{ messages[0].name.first }}", "refused the conversation: .*no attribute 'name'"),
        ("{{ messages.__class__.__mro__ }}", "refused the conversation"),
        ("{% set _ = messages.append(1) %}", "refused the conversation"),
        ("{% for i in range(999999999) %}x{% endfor %}", "failed on the conversation: OverflowError"),
    ],
)
def test_what_a_template_says_reaches_the_user(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(CHAT, template)


def test_a_missing_template_is_reported_with_a_remedy(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"no chat template; pass `chat_template`"):
        byte_level.apply_chat_template(CHAT)
    assert byte_level.apply_chat_template(CHAT, chat_template="{{ messages | length }}") == "3"


def test_continuing_what_the_template_does_not_show_is_refused() -> None:
    with pytest.raises(ValueError, match="does not show the whole last message"):
        render(CHAT, "nothing", add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(ValueError, match="set add_generation_prompt=False"):
        render(CHAT, CHATML, continue_final_message=True)
    with pytest.raises(ValueError, match="no text to continue"):
        render(
            [{"role": "assistant", "content": None}], CHATML, add_generation_prompt=False, continue_final_message=True
        )


def test_templates_know_the_date_and_the_callers_messages_stay_as_they_are() -> None:
    chat = [{"role": "assistant", "content": "x"}]
    assert render(chat, "{{ strftime_now('%Y') }}") == str(datetime.now().year)
    render(chat, "{{ messages[0].content }}", add_generation_prompt=False, continue_final_message=True)
    assert chat == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config_json": {"chat_template": "from config"}},
        {"tokenizer_config_json": {"chat_template": [{"name": "default", "template": "from config"}]}},
        {"tokenizer_config_json": {"chat_template": "old"}, "chat_template_jinja": "from config"},
        {"chat_template_json": {"chat_template": "from config"}},
    ],
)
def test_the_template_is_found_in_every_place_it_may_be(
    backends: Backends, write_model_dir: WriteModelDir, files: dict[str, Any]
) -> None:
    tokenizer = Tokenizer.from_dir(write_model_dir(tokenizer_json=backends["byte_level"], **files))
    assert tokenizer.chat_template == "from config"
    assert tokenizer.apply_chat_template(CHAT) == "from config"


def test_named_templates_are_chosen_by_name_or_by_tools(backends: Backends, write_model_dir: WriteModelDir) -> None:
    templates = [{"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "rag"}]
    directory = write_model_dir(
        tokenizer_json=backends["byte_level"], tokenizer_config_json={"chat_template": templates}
    )
    tokenizer = Tokenizer.from_dir(directory)
    assert tokenizer.apply_chat_template(CHAT, chat_template="rag") == "rag"
    assert tokenizer.apply_chat_template(CHAT, variables={"tools": TOOLS}) == "tools"
    with pytest.raises(ValueError, match="no default one; name one of: rag, tool_use"):
        tokenizer.apply_chat_template(CHAT)


@pytest.mark.parametrize(
    ("template", "lead"),
    [
        (CHATML, ""),
        ("{% for m in messages %}{{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else ' ' + m.content }}"
         "{% endfor %}", " "),
        ("{% for m in messages %}<{{ m.role }}>\n{% if m.role == 'assistant' %}\n\n{% endif %}{{ m.content }}"
         "{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}", "\n"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}", ""),
        ("{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}", ""),
    ],
)  # fmt: skip
def test_the_blanks_with_which_answers_start_are_known(template: str, lead: str) -> None:
    assert answer_lead(template, tuple(NAMES.items())) == lead


def test_a_chat_template_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("{{ messages }}")
    assert read_chat_template(file) == "{{ messages }}"
    file.write_text("{%- generation %}{{ messages[0].content }}{% endgeneration -%}")
    assert "generation" in read_chat_template(file)
    file.write_text("{% if %}")
    with pytest.raises(ValueError, match="broken"):
        read_chat_template(file)
    file.write_text("")
    with pytest.raises(ValueError, match="empty"):
        read_chat_template(file)
    with pytest.raises(ValueError, match="missing"):
        read_chat_template(tmp_path / "missing")


def test_a_template_that_takes_long_to_compile_is_refused() -> None:
    with pytest.raises(ValueError, match="the chat template has 300000 characters, more than 250000"):
        read_chat_template("{{ x }}   " * 30_000)


def test_a_chat_template_may_be_given_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("{{ messages }}", "{% for m in messages %}x{% endfor %}", "one line\nand another", "{{ x }}" * 9999):
        assert read_chat_template(text) == text
    with pytest.raises(ValueError, match=r"chat_template='\{% if %\}': the chat template is broken"):
        read_chat_template("{% if %}")
    monkeypatch.chdir(tmp_path)
    Path("{{odd}}.jinja").write_text("{{ messages }}!")
    assert read_chat_template("{{odd}}.jinja") == "{{ messages }}!", "a file has precedence"


def test_a_model_s_broken_template_is_reported_when_its_tokenizer_starts(
    backends: Backends, write_model_dir: WriteModelDir, caplog: pytest.LogCaptureFixture
) -> None:
    def told(template: str) -> str:
        caplog.clear()
        config = {"chat_template": template}
        path = write_model_dir(tokenizer_json=backends["byte_level"], tokenizer_config_json=config)
        isolated = IsolatedTokenizer(Tokenizer.from_dir(path), "mine")
        isolated.start()
        isolated.close()
        return caplog.text

    assert told("{{ messages[0].content }}") == ""
    assert "mine: the chat template is broken" in told("{% if %}")
