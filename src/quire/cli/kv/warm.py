"""`quire kv warm`: compute the KV of text files in advance and keep it in the KV directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.cli.options import Json, options
from quire.cli.tables import write_figures
from quire.config import EngineConfig

EXAMPLE = "Example: quire kv warm --model quire-mini --kv-dir /var/lib/quire/kv handbook.txt"


@options()
def warm(
    engine: EngineConfig,
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="UTF-8 text files; each one is a document.")],
    chat: Annotated[
        bool, typer.Option("--chat/--no-chat", help="Put the document at the start of a conversation.")
    ] = False,
    role: Annotated[str, typer.Option(help="With --chat: role of the message that begins with the document.")] = "user",
    chat_template: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --chat: a template (or its text) in place of the model's own."),
    ] = None,
    head: Annotated[str, typer.Option(help="Text in front of the document in prompts, such as 'Context: '.")] = "",
    json: Json = None,
) -> None:
    """Compute the KV of documents and keep it for all prompts that begin with them.

    A prompt matches if it has the same text from its first character on (with --chat: in the first message). Stored
    blocks are not computed again.
    """
    if engine.kv_dir is None:
        raise ValueError("no KV directory is given; name the servers' directory with --kv-dir")
    if engine.skip_tokenizer_init:
        raise ValueError("files are text and need a tokenizer; leave out --skip-tokenizer-init")
    if not chat and (role != "user" or chat_template is not None):
        name = "--role" if role != "user" else "--chat-template"
        raise ValueError(f"{name} applies to a conversation; add --chat")
    rows = _warm_all(engine, files, _joiner(head, role, chat_template) if chat else _joiner(head))
    write_figures(json, {"model": engine.model, "kv_dir": engine.kv_dir, "files": rows})
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _joiner(head: str, role: str | None = None, chat_template: str | None = None) -> Callable[[Any, str], Any]:
    """Return a function (tokenizer, text) -> `JoinedPrompt`; with a role, at the start of a conversation."""
    from quire.text.chat_template import read_chat_template
    from quire.text.document_boundary import join_messages, join_text, opening_messages

    if role is None:
        return lambda tokenizer, text: join_text(tokenizer, [text], head=head)
    template = None if chat_template is None else read_chat_template(chat_template)
    messages = opening_messages(role)
    return lambda tokenizer, text: join_messages(tokenizer, [text], messages, head=head, chat_template=template)


def _warm_all(config: EngineConfig, files: list[Path], join: Callable[[Any, str], Any]) -> list[dict[str, Any]]:
    """Warm all files, and return one row per file for --json."""
    from quire.assembly import start_engine
    from quire.engine.document_warmer import DocumentWarmer

    texts = {file: _read(file) for file in dict.fromkeys(files)}  # report unreadable files before loading the model
    engine = start_engine(config)
    warmer = DocumentWarmer(engine)
    rows: list[dict[str, Any]] = []
    try:
        for file, text in texts.items():
            try:
                row = _warm_one(warmer, engine, str(file), join(engine.tokenizer, text))
            except (ValueError, RuntimeError) as error:  # continue with the other files
                row = {"error": str(error)}
            row = {"file": str(file), **row}
            rows.append(row)
            _print_row(row, engine.scheduler.config.block_size)
    except KeyboardInterrupt:
        warmer.finish()
        typer.echo(f"interrupted; the KV of {len(rows)} of {len(texts)} file{'s' * (len(texts) > 1)} is kept", err=True)
        raise
    return rows


def _read(file: Path) -> str:
    try:
        text = file.read_bytes().decode()  # without changing line breaks
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}; convert it, or extract its text") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None
    if not text:
        raise ValueError(f"{file} is empty")
    return text


def _warm_one(warmer: Any, engine: Any, name: str, joined: Any) -> dict[str, Any]:
    from quire.prompt import Prompt

    started = time.monotonic()
    num_tokens = joined.documents[-1]
    longest = engine.max_model_len - 1
    if num_tokens > longest:
        return {
            "num_tokens": num_tokens,
            "error": f"{num_tokens} tokens exceed the {longest} that max_model_len={longest + 1} allows; split "
            "the file, or raise --max-model-len",
        }
    prompt = Prompt(token_ids=joined.token_ids[:num_tokens], documents=joined.documents)
    warmed = warmer.warm(prompt)
    warmer.label(name, prompt, joined.start)
    size = engine.scheduler.config.block_size
    row = {
        "num_tokens": num_tokens,
        "num_blocks": num_tokens // size,
        "num_kept_blocks": warmed.num_kept // size,
        "num_kept_before": warmed.num_kept_before // size,
        "num_loaded_tokens": warmed.num_loaded,
        "num_computed_tokens": warmed.num_computed,
        "seconds": round(time.monotonic() - started, 4),
    }
    if row["num_kept_blocks"] < row["num_blocks"]:
        row["error"] = (
            f"only {row['num_kept_blocks']} of {row['num_blocks']} blocks are kept; see the log, or raise --kv-dir-size"
        )
    return row


def _print_row(row: dict[str, Any], block_size: int) -> None:
    if "error" in row:
        typer.secho(f"{row['file']}: {row['error']}", fg=typer.colors.RED, err=True)
        return
    if not row["num_blocks"]:
        what = f"shorter than a block ({block_size}), so nothing is kept"
    elif row["num_kept_before"] == row["num_blocks"]:
        what = f"all {row['num_blocks']} blocks are there"
    else:
        done = f"{row['num_computed_tokens']:,} computed"
        if row["num_loaded_tokens"]:
            done += f", {row['num_loaded_tokens']:,} found"
        what = f"{row['num_kept_blocks']:,} blocks kept ({done})"
    typer.echo(f"{row['file']}: {row['num_tokens']:,} tokens, {what}, {row['seconds']:.2f} s")
