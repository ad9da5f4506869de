"""A tokenizer whose work runs in a child process with limits, since templates and tokenizers come from strangers."""

from __future__ import annotations

import json
import logging
import os
import signal
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from quire.system.child_process import ChildProcess
from quire.system.worker_process import Worker, WorkerError, WorkerKilled, WorkerLimits, WorkerProcess, WorkerTimeout
from quire.text.tokenizer import Tokenizer

logger = logging.getLogger("quire")

RENDER_S = 5.0  # processor time to render a conversation; honest templates take milliseconds
_ENCODE_S, _ENCODE_S_PER_CHARACTER = 5.0, 2e-5  # twenty times what ordinary tokenizers take
_MEMORY_GIB = 2  # beyond the vocabulary
_LIMITS = WorkerLimits(memory_bytes=_MEMORY_GIB << 30, cpu_s=None)
_WALL_S, _WALL_S_PER_CPU_S = 10.0, 4.0  # deadline: a busy machine takes seconds to start the process, and divides cores
_NUM_THREADS = "4"  # of the tokenizers library; each costs address space


class IsolatedTokenizer(Tokenizer):
    """Renders and encodes in a child process, which starts with the first text and again after a text that ended it.

    Methods block, raise ValueError for text over a limit, and WorkerError if the process was killed from outside.
    """

    def __init__(self, tokenizer: Tokenizer, name: str, child: ChildProcess | None = None) -> None:
        self.__dict__.update(tokenizer.__dict__)
        self._inner = tokenizer
        self._name = name
        self._child = WorkerProcess(partial(_make_worker, tokenizer), "tokenizer", limits=_LIMITS, first=child)
        own = weakref.proxy(self)  # no cycle: the process ends with the last reference
        self._fact = lru_cache(maxsize=16)(lambda task, template: own._render(task, template))

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self._inner,)

    def start(self) -> None:
        """Start the process before its first text, and warn of broken templates."""
        hint = "conversations will be refused; --chat-template FILE replaces it"
        with suppress(WorkerError, OSError):  # the first text reports it
            for error in json.loads(self._child.ask(b"")):
                logger.warning("%s: %s; %s", self._name, error, hint)

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        return self._encode("encode_batch", texts, add_special_tokens)[1]

    def encode_plain(self, text: str) -> list[int]:
        return self._encode("encode_plain", [text], False)[1][0]

    def encode_chat(self, text: str, add_special_tokens: bool = False) -> tuple[str, list[int]]:
        shown, (ids,) = self._encode("encode_chat", [text], add_special_tokens)
        return (text if shown is None else shown), ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        if self.pieces is not None:  # the decoder is a simple one
            return super().decode(token_ids, skip_special_tokens)
        question = ["decode", list(token_ids), skip_special_tokens]
        return str(self._exchange(f"the tokenizer of {self._name}", _ENCODE_S, question, {})[0])

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        return str(self._render("apply_chat_template", messages, **options))

    def answer_lead(self, chat_template: str | None = None) -> str:
        return str(self._fact("answer_lead", chat_template))

    def shows_tools(self, chat_template: str | None = None) -> bool:
        return bool(self._fact("shows_tools", chat_template))

    def close(self) -> None:
        """End the process for good."""
        self._child.stop()

    def _render(self, task: str, *values: Any, **options: Any) -> Any:
        return self._exchange(f"the chat template of {self._name}", RENDER_S, [task, *values], options)[0]

    def _encode(self, task: str, texts: Sequence[str], add_special_tokens: bool) -> tuple[str | None, list[list[int]]]:
        seconds = _ENCODE_S + _ENCODE_S_PER_CHARACTER * sum(len(text) for text in texts if isinstance(text, str))
        what = f"the tokenizer of {self._name}"
        head, ids = self._exchange(what, seconds, [task, list(texts), add_special_tokens], {})
        flat, start, found = array("I", ids), 0, []
        for length in head["lengths"]:
            found.append(flat[start : start + length].tolist())
            start += length
        return head["text"], found

    def _exchange(self, what: str, seconds: float, question: list[Any], options: dict[str, Any]) -> tuple[Any, bytes]:
        try:
            asked = json.dumps([seconds, options, *question]).encode()
        except (TypeError, RecursionError) as error:
            raise ValueError(f"a chat template takes JSON values only: {error}") from None
        try:
            head, _, rest = self._child.ask(asked, _WALL_S + _WALL_S_PER_CPU_S * seconds).partition(b"\n")
        except (WorkerTimeout, WorkerKilled):
            raise
        except WorkerError as error:
            raise ValueError(
                f"{what} took more than {seconds:.0f} s of processor time or {_MEMORY_GIB} GiB of "
                f"memory, and was ended ({error}); send a shorter text, or use another checkpoint or template"
            ) from None
        return json.loads(head), rest


def _identity(tokenizer: Tokenizer) -> Tokenizer:
    return tokenizer


# -- in the process --------------------------------------------------------------------------------------------------


def _make_worker(tokenizer: Tokenizer) -> Worker:
    os.environ.setdefault("RAYON_NUM_THREADS", _NUM_THREADS)

    def answer(question: bytes) -> bytes:
        if not question:
            return json.dumps(list(_broken_templates(tokenizer))).encode()
        seconds, options, task, *values = json.loads(question)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # ends the process
        try:
            if task.startswith("encode"):
                return _encode(tokenizer, task, *values)
            return json.dumps(getattr(tokenizer, task)(*values, **options)).encode()
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of the tokenizers library, which cannot be imported
                raise
            raise ValueError(f"the tokenizer fails on this text ({error}); change it, or use another one") from None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    return answer


def _broken_templates(tokenizer: Tokenizer) -> Iterator[str]:
    from quire.text.chat_template import check_template  # imports jinja2

    for name, template in tokenizer.chat_templates.items():
        try:
            check_template(template)
        except ValueError as error:
            yield f"{error} (its template {name!r})"


def _encode(tokenizer: Tokenizer, task: str, texts: list[Any], add_special_tokens: bool) -> bytes:
    shown: str | None = None
    if task == "encode_chat":
        shown, ids = tokenizer.encode_chat(texts[0], add_special_tokens)
        found, shown = [ids], None if shown == texts[0] else shown
    elif task == "encode_plain":
        found = [tokenizer.encode_plain(texts[0])]
    else:
        found = tokenizer.encode_batch(texts, add_special_tokens)
    head = {"lengths": list(map(len, found)), "text": shown}
    return json.dumps(head).encode() + b"\n" + b"".join(array("I", ids).tobytes() for ids in found)
