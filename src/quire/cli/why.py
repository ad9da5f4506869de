"""`quire why`: show how a server read recent prompts, and why tokens were read again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from quire.cli.client_options import ApiKey, failures_in_one_line
from quire.cli.tables import print_table, show_time

EXAMPLE = "Example: quire why http://127.0.0.1:8000"
_HINTS = {
    "http_401": "give the key by --api-key or QUIRE_API_KEY",
    "http_404": "quire why URL lists the requests of a server; older versions of Quire and other servers keep none",
}


def why(
    url: Annotated[str, typer.Argument(metavar="URL", help="Server, such as http://127.0.0.1:8000.")],
    request_id: Annotated[
        str | None, typer.Argument(metavar="REQUEST_ID", help="Id of an answer. Default: list the last requests.")
    ] = None,
    api_key: ApiKey = None,
) -> None:
    """Show where a server found recent prompts' KV, and why tokens were read again."""
    with failures_in_one_line():
        if request_id is not None:
            _explain(_get(url, api_key, request_id))
            return
        recent = _get(url, api_key)["data"]
        head = ("request", "model", "time", "prompt", "computed", "seconds", "cause")
        print_table(head, [_row(each) for each in recent], empty="The server keeps no request of this key yet.")
        again = (each for each in recent if each["divergence"] and each["divergence"]["cause"] != "first")
        if (latest := next(again, None)) is not None:
            typer.echo()
            _explain(latest)


def _get(url: str, api_key: str | None, request_id: str = "") -> Any:
    from urllib.parse import quote

    from quire.client.errors import RemoteError
    from quire.client.server_address import ServerAddress

    path = "requests" + (f"/{quote(request_id, safe='')}" if request_id else "")
    try:
        return ServerAddress.of(url, api_key).ask("GET", path, timeout_s=10)
    except RemoteError as error:
        hint = _HINTS.get(error.kind)
        raise RemoteError(error.kind, f"{error}; {hint}" if hint else str(error)) from None


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    split, computed = record["divergence"], record["found"]["computed"]
    seconds, time = _seconds(record["missed_s"]), show_time(record["created"])
    cause = split["cause"] if split else ""
    return (record["id"], record["model"], time, record["prompt_tokens"], computed, seconds, cause)


def _explain(record: dict[str, Any]) -> None:
    name = f"{record['id']} ({record['model']}, {show_time(record['created'])})"
    typer.echo(f"{name}: {record['prompt_tokens']:,} prompt tokens, first token after {_seconds(record['ttft_s'])} s")
    at = 0
    for part in record["ribbon"]:
        source = {"process": "disk, from another process"}.get(part["source"], part["source"])
        where = source if source == "computed" else f"found on {source}"
        typer.echo(f"  tokens {at:,} to {at + part['tokens']:,}: {where}")
        at += part["tokens"]
    typer.echo(f"  the computed ones cost {_seconds(record['missed_s'])} s, as predicted")
    if (split := record["divergence"]) is None:
        typer.echo("Nothing was read again.")
        return
    typer.secho(split["explanation"], bold=True)
    for name in ("before", "after"):
        if split[name]:
            typer.echo(f"  {name:6} at token {split['token']:,}: {split[name]!r}")


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
