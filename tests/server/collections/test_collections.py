"""/v1/collections: add, find and delete documents; each key sees its own and public collections."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from quire.server.settings import ServerSettings
from server.collections.collections_app import ADMIN, ANN, BOB, served


def make(client: TestClient, name: str, *documents: dict[str, Any], **fields: Any) -> str:
    """Create a collection with these documents, and return its path."""
    assert client.post("/v1/collections", json={"name": name, **fields}).status_code == 200
    if documents:
        add(client, name, *documents)
    return f"/v1/collections/{name}"


def add(client: TestClient, name: str, *documents: dict[str, Any]) -> Any:
    answer = client.post(f"/v1/collections/{name}/documents", json={"documents": documents})
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(answer: Any) -> list[int]:
    return [answer[what] for what in ("added", "changed", "unchanged", "removed", "failed")]


def found(client: TestClient, path: str, query: str, **fields: Any) -> list[str]:
    answer = client.post(f"{path}/search", json={"query": query, **fields})
    assert answer.status_code == 200, answer.text
    return [passage["text"] for passage in answer.json()["data"]]


def error_of(answer: Any) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_documents_are_added_found_changed_and_deleted(client: TestClient) -> None:
    told: list[str] = []
    client.app.state.service.on_deleted = lambda info, texts: told.extend(texts)  # type: ignore[attr-defined]
    cats = {"name": "pets/cats.md", "text": "# Cats\n\nCats sleep all day.", "metadata": {"n": 1}}
    dogs = {"name": "dogs", "text": "Dogs bark at night.", "metadata": {"n": 2}}
    page = {"name": "fish.html", "data": base64.b64encode(b"<title>Fish</title><p>Fish swim.</p>").decode()}
    path = make(client, "life")
    assert counts(add(client, "life", cats, dogs, page)) == [3, 0, 0, 0, 0]
    assert found(client, path, "when do dogs bark at night", top_k=1) == ["Dogs bark at night."]
    assert found(client, path, "dogs", filter={"n": [1, 3]}) == ["# Cats\n\nCats sleep all day."]
    best = client.post(f"{path}/search", json={"query": "fish swim"}).json()["data"][0]
    assert (best["document"], best["metadata"]) == ("fish.html", {"kind": "html", "title": "Fish"})
    whole = client.get(f"{path}/documents/{best['document_id']}").json()
    assert whole["text"][best["start"] : best["end"]] == best["text"]

    assert counts(add(client, "life", cats, {**dogs, "text": "Dogs bark at noon."})) == [0, 1, 1, 0, 0]
    assert client.get(f"{path}/documents/pets/cats.md").json()["text"] == cats["text"]
    first = client.get(f"{path}/documents", params={"limit": 2}).json()
    rest = client.get(f"{path}/documents", params={"after": first["data"][-1]["id"]}).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert [each["name"] for each in first["data"] + rest["data"]] == ["pets/cats.md", "dogs", "fish.html"]

    assert client.delete(f"{path}/documents/dogs").json()["deleted"]
    assert not [text for text in found(client, path, "dogs bark") if "Dogs" in text]
    assert error_of(client.delete(f"{path}/documents/dogs")) == (404, "document_not_found", None)
    assert client.get(path).json()["num_documents"] == 2
    assert client.delete(path).json()["deleted"]
    assert error_of(client.get(path)) == (404, "collection_not_found", "collection")
    assert told == ["Dogs bark at night.", "Dogs bark at noon.", cats["text"], "Fish swim."]
    metrics = client.get("/metrics").text
    assert 'quire_collection_documents_total{outcome="changed"} 1.0' in metrics
    assert 'quire_http_requests_total{handler="/v1/collections/{name}/search",method="POST",status="200"}' in metrics


def test_a_document_that_cannot_be_taken_says_why_and_the_others_are_taken(client: TestClient) -> None:
    path = make(client, "mixed", {"name": "kept.txt", "text": "kept words"})
    answer = add(
        client,
        "mixed",
        {"name": "a", "text": "good words"},
        {"name": "broken.pdf", "data": "AAAA"},
        {"name": "none", "data": "!"},
        {"name": "b", "kind": "text", "data": "!"},
        {"name": "both", "text": "x", "data": "eA=="},
        {"name": "7", "text": "x"},
        {"name": "kept.txt", "text": " "},
        {"name": "a", "text": "other words"},
        {"name": "huge", "text": "x", "metadata": {"k": "v" * 20_000}},
        {"name": "q.json", "text": '{"data": [{"paragraphs": [{"context": "One."}, {"context": "Two."}]}]}'},
    )
    assert counts(answer) == [3, 0, 0, 0, 8]
    reasons = [each["error"]["message"] if "error" in each else "" for each in answer["documents"]]
    words = ("", "as pdf", "give a kind", "base64", "one of the two", "a number", "no text", "twice", "16,384", "")
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons
    assert found(client, path, "kept words", top_k=1) == ["kept words"]
    assert error_of(client.get(f"{path}/documents/q.json")) == (409, "several_documents", None)
    assert client.delete(f"{path}/documents/q.json").status_code == 200
    assert client.get(path).json()["num_documents"] == 2


def test_a_private_collection_is_to_others_as_one_that_is_not_there(client: TestClient) -> None:
    path = make(client, "private", {"name": "a", "text": "Ann's secret"})
    for method, place, body in (
        ("GET", "", None), ("DELETE", "", None), ("GET", "/documents", None), ("GET", "/documents/a", None),
        ("DELETE", "/documents/a", None), ("POST", "/search", {"query": "x"}),
        ("POST", "/documents", {"documents": [{"name": "a", "text": "x"}]}),
    ):  # fmt: skip
        for who in (BOB, ADMIN):
            theirs = client.request(method, path + place, json=body, headers=who)
            nobodys = client.request(method, "/v1/collections/nowhere" + place, json=body, headers=who)
            assert theirs.status_code == nobodys.status_code == 404
            assert theirs.json() == {"error": {**nobodys.json()["error"], "message": theirs.json()["error"]["message"]}}
            assert theirs.text.replace("private", "nowhere") == nobodys.text
    assert client.post("/v1/collections", json={"name": "private"}, headers=BOB).status_code == 200
    assert client.get(path).json()["num_documents"] == 1
    listed = [client.get("/v1/collections", headers=who).json()["data"] for who in (ANN, BOB)]
    assert {each["id"] for each in listed[0]}.isdisjoint(each["id"] for each in listed[1])


def test_a_public_collection_is_read_by_all_keys_and_changed_by_its_own(client: TestClient) -> None:
    assert error_of(client.post("/v1/collections", json={"name": "p", "public": True})) == (403, "not_admin", "public")
    document = {"documents": [{"name": "a", "text": "for everyone"}]}
    assert client.post("/v1/collections", json={"name": "p", "public": True}, headers=ADMIN).json()["public"]
    assert client.post("/v1/collections/p/documents", json=document, headers=ADMIN).status_code == 200
    assert found(client, "/v1/collections/p", "everyone") == ["for everyone"]
    for method, place, body in (
        ("DELETE", "", None),
        ("DELETE", "/documents/a", None),
        ("POST", "/documents", document),
    ):
        answer = client.request(method, "/v1/collections/p" + place, json=body)
        assert error_of(answer) == (403, "not_owner", "collection")
    assert client.delete("/v1/collections/p", headers=ADMIN).status_code == 200


def test_a_key_has_quotas_and_errors_name_them(client: TestClient) -> None:
    client.headers = {**BOB}
    try:
        path = make(client, "full")
        answer = add(client, "full", *({"name": f"d{i}", "text": f"text {i}"} for i in range(32)))
        assert counts(answer) == [30, 0, 0, 0, 2]
        refused = client.post(f"{path}/documents", json={"documents": [{"name": "e", "text": "x"}]})
        assert error_of(refused) == (413, "quota_exceeded", "documents")
        assert "30 is its limit" in refused.text
        assert counts(add(client, "full", {"name": "d0", "text": "another"})) == [0, 1, 0, 0, 0]
        client.delete(f"{path}/documents/d1")
        assert (
            "128.0 KiB"
            in client.post(f"{path}/documents", json={"documents": [{"name": "long", "text": "word " * 30_000}]}).text
        )
        names = iter(range(99))
        while (answer := client.post("/v1/collections", json={"name": f"more {next(names)}"})).status_code == 200:
            pass
        assert error_of(answer) == (413, "quota_exceeded", None)
    finally:
        client.headers = ANN


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\nb", "x" * 201, " a"])
def test_a_name_that_no_url_can_hold_is_refused(client: TestClient, name: str) -> None:
    assert error_of(client.post("/v1/collections", json={"name": name})) == (400, "invalid_value", "name")


def test_filters_and_queries_are_checked(client: TestClient) -> None:
    path = make(client, "checked")
    for body, param in (
        ({"query": ""}, "query"),
        ({"query": "x", "top_k": 101}, "top_k"),
        ({"query": "x", "filter": {"a": {"b": 1}}}, "filter.a"),
        ({"query": "x", "filter": {str(i): i for i in range(33)}}, "filter"),
        ({"query": "x", "filter": {"a": list(range(101))}}, "filter"),
        ({"query": "x", "filter": {"a": 2**70}}, "filter"),
    ):
        assert error_of(client.post(f"{path}/search", json=body)) == (400, "invalid_value", param)
    assert error_of(client.get(f"{path}/documents", params={"limit": "x"})) == (400, "invalid_value", "limit")
    again = client.post("/v1/collections", json={"name": "checked"})
    assert error_of(again) == (409, "collection_exists", "name")
    much = client.post("/v1/collections", json={"name": "checked 2", "chunk_tokens": 9999})
    assert error_of(much) == (400, "invalid_value", "chunk_tokens")


def test_searches_are_by_words_too_or_by_vectors_only(client: TestClient) -> None:
    near, far = "! ? ;", "far E4711 away"  # signs have vectors, but are no words
    path = make(client, "c", {"name": "near", "text": near}, {"name": "far", "text": far})
    query = "! ? ; e4711"
    assert found(client, path, query, search="vectors") == [near, far]
    assert found(client, path, query) == found(client, path, query, search="hybrid") == [far, near]
    answer = client.post(f"{path}/search", json={"query": query, "search": "words"})
    assert error_of(answer) == (400, "invalid_value", "search")


def test_a_server_without_them_says_how_to_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(ServerSettings()) as client:
        assert error_of(client.get("/v1/collections")) == (404, "collections_off", None)
        assert "--rag-dir" in client.post("/v1/collections", json={"name": "a"}).text
        documents = {"documents": [{"name": "a", "text": "x"}]}
        assert "--rag-dir" in client.post("/v1/collections/a/documents", json=documents).text
        assert error_of(client.post("/v1/embeddings", json={"input": "a"})) == (404, "embeddings_off", None)
    with pytest.raises(ValueError, match="--rag-dir /dev/null/rag cannot be written"):
        served(ServerSettings(rag_dir=Path("/dev/null/rag"), embedder="hashing"))
    with served(ServerSettings(rag_dir=tmp_path / "rag", embedder="hashing")) as client:
        (tmp_path / "rag" / "collections.sqlite3").write_bytes(b"damaged" * 1000)
        broken = client.get("/v1/collections")
        monkeypatch.setitem(sys.modules, "quire.rag.collections", None)
        lacking = client.get("/v1/collections")
    assert error_of(lacking) == (501, "not_installed", None)
    assert "pip install 'quire-llm[rag]'" in lacking.json()["error"]["message"]
    assert error_of(broken) == (503, "storage_failed", None)
    assert str(tmp_path) not in broken.text


def test_a_page_of_documents_ends_before_a_large_answer_and_says_that_more_follow(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.server.collections.routes._MAX_PAGE_CHARACTERS", 10_000)
    client.post("/v1/collections", json={"name": "large"})
    metadata = {f"k{number}": "v" * 80 for number in range(32)}
    documents = [{"name": f"n{number}", "text": "a", "metadata": metadata} for number in range(10)]
    assert client.post("/v1/collections/large/documents", json={"documents": documents}).status_code == 200
    names, after, sizes, has_more = [], 0, [], True
    while has_more:
        page = client.get(f"/v1/collections/large/documents?limit=1000&after={after}").json()
        names += [each["name"] for each in page["data"]]
        sizes.append(len(page["data"]))
        has_more, after = page["has_more"], page["data"][-1]["id"]
    assert names == [f"n{number}" for number in range(10)]
    assert sizes == [3, 3, 3, 1]
    where = {f"k{number}": ["v" * 80, "x"] for number in range(32)}
    search = {"query": "a", "filter": where, "top_k": 100}
    assert len(client.post("/v1/collections/large/search", json=search).json()["data"]) == 10
    search["filter"] = {**where, "k0": ["x"]}
    assert client.post("/v1/collections/large/search", json=search).json()["data"] == []
    search["filter"] = {key: ["x"] * 10 for key in where}
    assert "320 values" in client.post("/v1/collections/large/search", json=search).json()["error"]["message"]


def test_a_document_of_too_many_chunks_is_rejected(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.rag.parser_process.MAX_CHUNKS", 3)
    client.post("/v1/collections", json={"name": "tiny", "chunk_tokens": 8, "overlap_tokens": 0})
    body = {"documents": [{"name": "long", "text": "word " * 100}, {"name": "short", "text": "word"}]}
    first, second = client.post("/v1/collections/tiny/documents", json=body).json()["documents"]
    assert "chunks of 8 tokens, and 3 are allowed" in first["error"]["message"]
    assert second["added"] == 1
