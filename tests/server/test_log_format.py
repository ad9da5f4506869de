"""Log lines as text and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
SAY = """
import logging
from quire.server.log_format import configure_logging
configure_logging({format!r}, {level!r})
log = logging.getLogger("quire.server")
log.info("hello %s", "you", extra={{"fields": {{"status": 200, "path": "/a b"}}}})
log.debug("too much")
logging.getLogger("other").info("of no interest")
logging.getLogger("other").warning("of interest")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("it failed")
"""


def say(log_format: str, level: str = "info") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SAY.format(format=log_format, level=level)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SRC)},
    )
    assert not done.stdout
    return done.stderr.splitlines()


def test_json_is_one_object_a_line_with_fields_and_the_whole_exception() -> None:
    hello, of_interest, failed = map(json.loads, say("json"))
    assert (hello["message"], hello["status"], hello["path"]) == ("hello you", 200, "/a b")
    assert (hello["level"], hello["logger"]) == ("info", "quire.server")
    assert hello["time"].endswith("+00:00")
    assert of_interest["message"] == "of interest"
    assert "ZeroDivisionError: division by zero" in failed["exception"]


def test_text_is_a_line_a_person_can_read() -> None:
    lines = say("text")
    assert lines[0].endswith('INFO hello you status=200 path="/a b"')
    assert lines[1].endswith("WARNING of interest")
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_the_level_hides_and_shows_our_lines_and_others_keep_their_warnings() -> None:
    assert any(line.endswith("DEBUG too much") for line in say("text", "debug"))
    quiet = say("text", "error")
    assert quiet[0].endswith("WARNING of interest")
    assert quiet[1].endswith("ERROR it failed")
