"""/v1/files and /v1/batches through the official client: answered once, over restarts, for their key only."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from quire.server.settings import ServerSettings
from scripted import HeldScript
from serving import MODEL, RunningServer, make_model, running, wait_until

SAID = "It is sunny."
CHAT: Any = "/v1/chat/completions"


def lines(*ids: str, **fields: Any) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Sun?"}], **fields}
    made = [{"custom_id": each, "method": "POST", "url": CHAT, "body": body} for each in ids]
    return b"".join(json.dumps(each).encode() + b"\n" for each in made)


def settings_in(directory: Path, **fields: Any) -> ServerSettings:
    return ServerSettings(batch_dir=directory / "batches", **fields)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(make_model(start=HeldScript(SAID)), settings=settings_in(tmp_path_factory.mktemp("b"))) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def upload(client: openai.OpenAI, content: bytes) -> str:
    return client.files.create(file=("requests.jsonl", io.BytesIO(content)), purpose="batch").id


def begin(client: openai.OpenAI, content: bytes) -> str:
    file_id = upload(client, content)
    return client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h", metadata={"a": "b"}).id


def end(client: openai.OpenAI, batch_id: str) -> Any:
    wait_until(lambda: client.batches.retrieve(batch_id).status in ("failed", "completed", "cancelled"))
    return client.batches.retrieve(batch_id)


def answers(client: openai.OpenAI, file_id: str | None) -> list[Any]:
    assert file_id is not None
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()]


def test_a_batch_is_answered_line_by_line(client: openai.OpenAI) -> None:
    content = lines("a", "b") + lines("c", temperature=-1) + lines("d")
    batch = end(client, begin(client, content))
    assert (batch.status, batch.metadata, batch.errors) == ("completed", {"a": "b"}, None)
    assert batch.request_counts.to_dict() == {"total": 4, "completed": 3, "failed": 1}
    assert batch.created_at <= batch.in_progress_at <= batch.completed_at
    assert client.files.content(batch.input_file_id).content == content
    found = answers(client, batch.output_file_id)
    assert sorted(each["custom_id"] for each in found) == ["a", "b", "d"]
    for each in found:
        assert (each["error"], each["response"]["status_code"]) == (None, 200)
        assert each["response"]["body"]["choices"][0]["message"]["content"] == SAID
        assert each["response"]["request_id"].startswith("req-")
    (failed,) = answers(client, batch.error_file_id)
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("c", 400)
    assert failed["response"]["body"]["error"]["param"] == "temperature"
    assert batch.id in [each.id for each in client.batches.list()]


def test_files_are_listed_shown_and_deleted(client: openai.OpenAI) -> None:
    first, second = upload(client, b"one"), upload(client, b"second")
    shown = client.files.retrieve(second)
    assert (shown.bytes, shown.filename, shown.purpose, shown.status) == (6, "requests.jsonl", "batch", "processed")
    assert [each.id for each in client.files.list(limit=1)][:2] == [second, first], "in pages"
    assert [each.id for each in client.files.list(order="asc", after=first)] == [second]
    assert client.files.delete(first).deleted
    for missing in (first, "file-none", "lock"):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            client.files.retrieve(missing)


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (b"", ["empty_file"]),
        (lines("a") + b"{\n" + lines("b") + lines("a"), ["invalid_json", "duplicate_custom_id"]),
        (lines("a").replace(b"chat/", b""), ["invalid_value"]),
    ],
)
def test_a_batch_with_malformed_lines_fails_and_asks_nothing(
    client: openai.OpenAI, content: bytes, codes: list[str]
) -> None:
    batch = end(client, begin(client, content))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert [each.code for each in batch.errors.data] == codes


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data; boundary=x", b"nothing", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=purpose", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"a" * 9000, 400),
        ("multipart/form-data; boundary=x", b'--x\r\nA: b; name="other"\r\n\r\n1\r\n--x--', 400),
        ("multipart/form-data; boundary=x", b'--x\r\nA: b; name="file"\r\n\r\n1\r\n--x--', 400),
        ('multipart/form-data; boundary="x"', b'--x\r\nA: b; name="purpose"\r\n\r\nbatch\r\n--x--', 400),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nA: b; name="purpose"\r\n\r\nbatch\r\n--x\r\nA: b; name="file"\r\n\r\n\r\n--\r\n--x--\r\n',
            200,
        ),
    ],
)
def test_uploads_are_forms(server: RunningServer, content_type: str, body: bytes, status: int) -> None:
    pieces = (body[at : at + 1] for at in range(len(body)))
    for content in (body, pieces):
        answer = server.send("POST", "/v1/files", content=content, headers={"Content-Type": content_type})
        assert answer.status_code == status, answer.text
        if status == 200:
            assert server.get(f"/v1/files/{answer.json()['id']}/content").content == b"\r\n--"


def test_a_cancelled_batch_keeps_its_answers(tmp_path: Path) -> None:
    script = HeldScript(SAID)
    with running(make_model(start=script), settings=settings_in(tmp_path)) as server, server.client() as client:
        script.may_step.clear()
        first, second = begin(client, lines("a", "b")), begin(client, lines("c"))
        wait_until(lambda: server.registry.get(None).async_engine.num_requests == 2)
        with pytest.raises(openai.ConflictError, match="has not ended"):
            client.files.delete(client.batches.retrieve(first).input_file_id)
        assert client.batches.cancel(first).status in ("cancelling", "cancelled")
        script.may_step.set()
        assert end(client, first).status == "cancelled"
        assert end(client, second).status == "completed", "which waited for the first"
        with pytest.raises(openai.ConflictError, match="it is cancelled"):
            client.batches.cancel(first)
        server.wait_until_idle()


def test_a_restarted_server_answers_the_rest_once(tmp_path: Path) -> None:
    ids = [f"line {number}" for number in range(60)]
    settings = settings_in(tmp_path, max_queue=4)  # two lines at once
    with running(make_model(start=HeldScript(SAID)), settings=settings) as server, server.client() as client:
        batch_id = begin(client, lines(*ids))
        wait_until(lambda: client.batches.retrieve(batch_id).request_counts.completed >= 3)
    output = next(tmp_path.glob("batches/*/*-output.jsonl"))
    before = output.read_bytes().count(b"\n")
    assert 3 <= before < len(ids)
    output.write_bytes(output.read_bytes() + b'{"id":"batch_req_torn')
    (output.parent / "file-x.part").write_bytes(b"an upload that the end cut off")
    with running(make_model(start=HeldScript(SAID)), settings=settings) as server, server.client() as client:
        batch = end(client, batch_id)
        assert batch.request_counts.to_dict() == {"total": 60, "completed": 60, "failed": 0}
        assert sorted(each["custom_id"] for each in answers(client, batch.output_file_id)) == sorted(ids)
        assert not (output.parent / "file-x.part").exists()


def test_a_key_sees_its_own_files_and_batches_only_and_fills_its_own_quota(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, api_keys=("ann", "bob"), tenant_secret=b"s", max_batch_bytes_per_key=100_000)
    with running(make_model(start=HeldScript(SAID)), settings=settings) as server:
        ann, bob = (openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) for key in ("ann", "bob"))
        file_id = upload(ann, lines("a"))
        batch_id = begin(ann, lines("a", "b"))
        batch = end(ann, batch_id)
        assert batch.status == "completed"
        assert not [*bob.files.list(), *bob.batches.list()]
        for ask in (
            lambda: bob.files.retrieve(file_id),
            lambda: bob.files.content(batch.output_file_id),
            lambda: bob.files.delete(file_id),
            lambda: bob.batches.retrieve(batch_id),
            lambda: bob.batches.cancel(batch_id),
            lambda: bob.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError):
                ask()
        with pytest.raises(openai.APIStatusError, match="delete some") as refused:
            upload(ann, b"x" * 100_000)
        assert refused.value.status_code == 413
        upload(bob, b"x" * 50_000)
        upload(ann, b"x" * 50_000)
        assert httpx.get(f"{server.url}/v1/files").status_code == 401


def test_a_batch_that_fills_the_quota_fails_with_its_answers(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, max_batch_bytes_per_key=25_000)
    with running(make_model(start=HeldScript(SAID)), settings=settings) as server, server.client() as client:
        batch = end(client, begin(client, lines(*map(str, range(40)))))
        assert (batch.status, batch.errors.data[0].code) == ("failed", "quota_exceeded")
        assert 0 < batch.request_counts.completed < 40
        assert len(answers(client, batch.output_file_id)) == batch.request_counts.completed


def test_one_server_at_a_time_uses_a_directory(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with running(make_model(), settings=settings) as first, running(make_model(), settings=settings) as second:
        assert first.get("/v1/files").status_code == 200
        answer = second.get("/v1/files")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_failed")
    with running(make_model()) as third:
        assert third.get("/v1/batches").json()["error"]["code"] == "batches_off"


def test_a_batch_waits_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import quire.server.batches.service as service
    from quire.server.batches.answers import AnswerFile

    append, failures = AnswerFile.append, [OSError(28, "No space left on device")] * 3

    def append_or_fail(self: AnswerFile, line: bytes) -> None:
        if failures:
            raise failures.pop()
        append(self, line)

    monkeypatch.setattr(AnswerFile, "append", append_or_fail)
    monkeypatch.setattr(service, "_PAUSE_S", 0.01)
    with (
        running(make_model(start=HeldScript(SAID)), settings=settings_in(tmp_path)) as server,
        server.client() as client,
    ):
        batch = end(client, begin(client, lines(*"abcdef")))
        assert (batch.status, batch.request_counts.completed) == ("completed", 6)
        assert len(answers(client, batch.output_file_id)) == 6
