"""Settings of a server process; those of an engine are in `EngineConfig`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from quire.config import EngineConfig
from quire.server.tools.families import AUTO, NONE, REASONING_PARSERS, TOOL_PARSERS
from quire.settings import EnvironmentSettings, LogLevel, check_unit, parse_size, setting

LOG_FORMATS = ("text", "json")
DEFAULT_MODELS = ("quire-chat", "quire-mini")  #: served without a model; the first one chats


@dataclass(frozen=True)
class ServerSettings(EnvironmentSettings):
    """Addresses, limits and safety.

    Every field with a help text is an option of `quire serve`, and QUIRE_<NAME> in the environment.
    """

    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 is all of them.")
    port: int = setting(8000, "Port to listen on; 0 chooses a free one.", at_least=0, at_most=65535)
    uds: str | None = setting(None, "Unix socket to listen on, in place of a port.", metavar="PATH")
    root_path: str = setting("", "Prefix of paths behind a proxy, such as /llm.", metavar="PREFIX")
    served_model_names: tuple[str, ...] = setting(
        (), "Names of the only --model; answers show the first.", name="served_model_name", metavar="NAME [NAME ...]"
    )
    accept_any_model_name: bool = setting(False, "Map unknown model names to the first model, in place of 404.")
    api_keys: tuple[str, ...] = setting(
        (),
        "API key; repeat the option for several. Without keys, every client is accepted. Also QUIRE_API_KEY=KEY,KEY.",
        name="api_key",
        in_environment=False,  # `load_api_keys` reads it: keys of several sources add up
        repr=False,
    )
    api_key_file: str | None = setting(None, "File of API keys, one a line.", metavar="FILE")
    admin_keys: tuple[str, ...] = setting(
        (),
        "API key that may also make public collections; repeat the option for several. Also QUIRE_ADMIN_KEY=KEY,KEY.",
        name="admin_key",
        in_environment=False,
        repr=False,
    )
    admin_key_file: str | None = setting(None, "File of admin keys, one a line.", metavar="FILE")
    routing: Path | None = setting(None, 'YAML file of the models and the policy for the model "auto".', metavar="FILE")
    rag_dir: Path | None = setting(None, "Directory of document collections; enables them.", metavar="DIR")
    pooling: str | None = setting(
        None,
        "Hidden states that are a model's embedding. Default: as its 1_Pooling says, else last.",
        choices=("last", "mean"),
    )
    embedder: str | None = setting(
        None,
        "Embedder: a directory, a hub id, hashing (for tests), or all-MiniLM-L6-v2, the default with --rag-dir; "
        "NAME=SOURCE serves it under that name.",
        metavar="[NAME=]SOURCE",
    )
    max_collections_per_key: int = setting(100, "Maximum number of collections of a key.", at_least=0)
    max_documents_per_key: int = setting(
        100_000, "Maximum number of documents in all collections of a key.", at_least=0
    )
    max_collection_bytes_per_key: int = setting(
        "1GiB", "Maximum size of a key's documents with their vectors.", read=parse_size, at_least=0
    )
    batch_dir: Path | None = setting(
        None, "Directory of uploaded files and batches. (default: ~/.cache/quire/batches)", metavar="DIR"
    )
    max_batch_bytes_per_key: int = setting(
        "1GiB", "Maximum size of a key's files, with the answers of its batches.", read=parse_size, at_least=0
    )
    chat_template: str | None = setting(
        None, "Jinja template, or its text, in place of the models' own.", metavar="FILE"
    )
    tool_call_parser: str = setting(
        AUTO,
        "Parser of function calls; auto detects it from the chat template, none rejects tools.",
        choices=(AUTO, NONE, *TOOL_PARSERS),
    )
    reasoning_parser: str = setting(
        AUTO,
        "Parser of reasoning; auto detects it from the chat template, none leaves reasoning in the content.",
        choices=(AUTO, NONE, *REASONING_PARSERS),
    )
    enable_force_include_usage: bool = setting(False, "Show the usage so far in every chunk of every stream.")
    return_tokens_as_token_ids: bool = setting(
        False, "Show tokens of log-probabilities as token_id:123, unless a request says otherwise."
    )
    open_metrics: bool = setting(False, "Serve /metrics and /version without a key.")
    max_body_bytes: int = setting("8MiB", "Maximum size of a request's body.", read=parse_size, at_least=1)
    max_queue: int = setting(1024, "Maximum number of waiting requests a model; further ones get 429.", at_least=1)
    load_wait_s: float = setting(
        120.0,
        "Seconds for which requests wait for a loading model before they get 503.",
        name="load_wait",
        metavar="SECONDS",
        at_least=0,
    )
    idle_unload_s: float | None = setting(
        None,
        "Seconds without a request after which a model is unloaded; the next request loads it again.",
        name="idle_unload",
        metavar="SECONDS",
        above=0,
    )
    memory_limit: int | None = setting(
        None,
        "Memory of all models together, such as 16GiB: a load unloads the least recently used idle models.",
        read=parse_size,
        at_least=1,
    )
    max_concurrent_per_key: int | None = setting(
        None, "Maximum number of concurrent sequences (prompts times n) of a key; further ones get 429.", at_least=1
    )
    priority_scope: str = setting(
        "key", "Requests that a body's priority may overtake: those of the same key, or all.", choices=("key", "all")
    )
    max_answers: int = setting(1024, "Maximum number of answers to a body: its prompts times n.", at_least=1)
    max_stored_responses: int = setting(1000, "Number of responses to keep for previous_response_id.", at_least=0)
    max_stored_requests: int = setting(
        100, "Number of requests of a key to keep for GET /v1/requests; 0 keeps none.", at_least=0
    )
    keep_kv: bool = setting(
        True,
        "Without --kv-dir, keep prompts' KV in ~/.cache/quire/kv ($XDG_CACHE_HOME), at most 10 GB and a tenth of the "
        "free disk.",
    )
    max_logprobs: int = setting(
        100, "Maximum number of log-probabilities a token; -1 is no limit, for the whole vocabulary.", at_least=-1
    )
    ignore_unknown_fields: bool = setting(
        False, "Ignore unknown fields of bodies, in place of rejecting them by name.", is_flag=True
    )
    trust_request_chat_template: bool = setting(
        False, "Accept chat templates in bodies, which may run for ever.", is_flag=True
    )
    cors_origins: tuple[str, ...] = setting(
        (), "Origin of pages that may send requests; repeat the option for several.", name="cors_origin"
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Host header that a server on a loopback address without keys accepts beside its own, such as a proxy's; "
        "* accepts all; repeat the option for several.",
        name="allowed_host",
        metavar="NAME",
    )
    ssl_certfile: str | None = setting(None, "Certificate for HTTPS.", metavar="FILE")
    ssl_keyfile: str | None = setting(None, "Private key of the certificate.", metavar="FILE")
    ssl_keyfile_password: str | None = setting(
        None, "Password of the private key.", envvar="QUIRE_SSL_KEYFILE_PASSWORD", repr=False
    )
    ssl_ca_certs: str | None = setting(
        None, "Certificate authorities; clients need a certificate of one of them.", metavar="FILE"
    )
    shutdown_timeout_s: float = setting(
        30.0, "Seconds for running requests to finish after SIGTERM.", name="shutdown_timeout", at_least=0
    )
    engine_process: bool = setting(
        True, "Run each engine in a process of its own, which is restarted if it dies; or all in the server's."
    )
    hang_timeout_s: float = setting(
        120.0,
        "Seconds after which an engine with an unfinished step is restarted.",
        name="hang_timeout",
        metavar="SECONDS",
        above=0,
    )
    keep_alive_s: float = setting(
        15.0, "Seconds between comments in an idle stream.", name="keep_alive", metavar="SECONDS", above=0
    )
    otlp_traces_endpoint: str | None = setting(
        None,
        "Send OpenTelemetry spans of requests there, such as http://127.0.0.1:4318/v1/traces.",
        metavar="URL",
    )
    log_interval_s: float = setting(10.0, "Seconds between log lines of load.", name="log_interval", above=0)
    log_format: str = setting("text", "Log format: text or json.", choices=LOG_FORMATS)
    log_level: str = setting(
        "info",
        "Least severe log lines: debug (also requests of probes), info, warning or error.",
        choices=get_args(LogLevel),
    )
    tenant_secret: bytes | None = field(default=None, repr=False)
    """Secret for the domains of tenants' KV blocks; kept over restarts."""
    heartbeat_timeout_s: float = 5  #: an engine that does not answer within this time is hanging

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.heartbeat_timeout_s > 0:
            raise ValueError(f"heartbeat_timeout_s={self.heartbeat_timeout_s} must be above 0")
        object.__setattr__(self, "api_keys", tuple(dict.fromkeys((*self.api_keys, *self.admin_keys))))
        if any(not key for key in self.api_keys):
            raise ValueError("an API key is empty; leave it out or give it characters")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ValueError(f"root_path={self.root_path!r} is not a prefix of paths; write it as in /llm")
        for name, value in (("idle_unload", self.idle_unload_s), ("memory_limit", self.memory_limit)):
            if value is not None and not self.engine_process:
                raise ValueError(
                    f"{name}={value:g} ends a model's process, and with no_engine_process it has none; leave one of "
                    "the two out"
                )
        check_unit(memory_limit=self.memory_limit)
        if self.uds == "":
            raise ValueError("uds is empty; name the path of a socket, or leave it out")
        if self.uds is not None and self.ssl_certfile is not None:
            raise ValueError("uds is a socket of this machine, where TLS protects nothing; leave one of the two out")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile is given without ssl_certfile; TLS needs the certificate too")

    def named(self, engines: dict[str, EngineConfig]) -> tuple[dict[str, EngineConfig], tuple[str, ...]]:
        """Return the engines by served name, and the aliases of the only one. ValueError if several
        share names."""
        names = self.served_model_names
        if not names:
            return engines, ()
        if len(engines) > 1:
            raise ValueError(
                f"--served-model-name names one model, and there are {len(engines)}; use --model NAME=SOURCE"
            )
        (config,) = engines.values()
        return {names[0]: config}, names[1:]
