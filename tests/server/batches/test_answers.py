"""Files of requests and of answers: malformed lines, torn and foreign files, a full disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from quire.server.batches.answers import AnswerFile
from quire.server.batches.lines import MAX_LINE_BYTES, Line, check_lines, read_lines


def line(custom_id: Any, **fields: Any) -> bytes:
    return json.dumps({"custom_id": custom_id, "url": "/v1/completions", "body": {}, **fields}).encode() + b"\n"


def write(path: Path, *lines: bytes) -> list[Line]:
    path.write_bytes(b"".join(lines))
    return list(read_lines(path))


def test_a_malformed_line_has_an_error_with_its_number(tmp_path: Path) -> None:
    found = write(
        tmp_path / "in",
        line("a"),
        b"\n",
        b"{\n",
        line(7),
        line("b", url="/v1/images"),
        line("c", method="GET"),
        line("d", body={"stream": True}),
        b"[" * 100_000 + b"\n",
        b"x" * 3 * MAX_LINE_BYTES + b"\n",
        line("e"),
    )
    assert [each.number for each in found] == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert [each.request.custom_id for each in found if each.request is not None] == ["a", "e"]
    for each in found[1:-1]:
        answer = json.loads(each.answer())
        assert (answer["custom_id"], answer["response"]) == (None, None)
        assert answer["error"]["line"] == each.number
        assert f"line {each.number}: " in answer["error"]["message"]
    assert len({each.key for each in found}) == len(found)


def test_a_repeated_id_is_found(tmp_path: Path) -> None:
    write(tmp_path / "in", line("a"), line("b"), line("a"))
    assert [each.error is None for each in check_lines(tmp_path / "in")] == [True, True, False]


def test_a_torn_line_is_removed_and_the_others_are_known(tmp_path: Path) -> None:
    first, second, third = write(tmp_path / "in", line("a"), b"{\n", line("c"))
    whole = first.answer(200, "req", {"text": "A"}) + second.answer()
    for torn in (b"", b"{", third.answer(200)[:-1], third.answer(200)[:30], b"\0" * 9):
        (tmp_path / "out").write_bytes(whole + torn)
        answers = AnswerFile(tmp_path / "out")
        assert answers.keys == {first.key, second.key}
        assert answers.num_completed == 1
        answers.append(third.answer(500, "req", {}))
        answers.close()
        assert (tmp_path / "out").read_bytes().startswith(whole + b'{"id":"batch_req_')
        assert len((tmp_path / "out").read_bytes().splitlines()) == 3


@pytest.mark.parametrize("content", [b"notes", b"notes\n", b'{"custom_id": "a"}\n', b'{"id":"batch_req_1"}\n'])
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "out").write_bytes(content)
    with pytest.raises(ValueError, match="line 1 is no answer of a batch"):
        AnswerFile(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    answers = AnswerFile(tmp_path / "out")
    with pytest.raises(ValueError, match="another process"):
        AnswerFile(tmp_path / "out")
    answers.close()
    AnswerFile(tmp_path / "out").close()


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write(tmp_path / "in", line("a"), line("b"))
    answers, write_all, room = AnswerFile(tmp_path / "out"), os.write, 20

    def write_some(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write_all(fd, data[:room])
        room -= done
        return done

    answers.append(first.answer(200))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_some)
        with pytest.raises(OSError, match="No space"):
            answers.append(second.answer(200))
    assert answers.keys == {first.key}
    answers.append(second.answer(200))
    answers.close()
    assert [json.loads(each)["custom_id"] for each in (tmp_path / "out").read_bytes().splitlines()] == ["a", "b"]
