"""The format of log lines: text for people, or JSON for programs.

A line may carry fields: ``logger.info("request", extra={"fields": {"status": 200}})``.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO


class TextFormatter(logging.Formatter):
    """``2031-05-06 07:08:09.123 INFO message name=value``; values of more than one word are quoted."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).isoformat(sep=" ", timespec="milliseconds")
        fields = "".join(f" {name}={_word(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{time} {record.levelname} {record.getMessage()}{fields}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the fields, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if trace := _trace(self, record):
            entry["exception"] = trace
        return json.dumps(entry, default=str)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the present `sys.stderr`, which a progress bar may have replaced."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        pass


def configure_logging(log_format: str = "text", level: str = "info") -> None:
    """Log to standard error, as text or JSON, from `level` on."""
    handler = _StderrHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("quire").setLevel(level.upper())


def _word(value: object) -> str:
    text = str(value)
    is_plain = text.isprintable() and text and not set(text) & {" ", '"', "="}
    return text if is_plain else json.dumps(text)  # a client's line breaks must not fake a line


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
