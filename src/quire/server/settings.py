"""What an operator may choose about the server; an engine's choices are in `EngineConfig`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from quire.config import EngineConfig
from quire.server.tools.families import AUTO, NONE, REASONING_PARSERS, TOOL_PARSERS
from quire.settings import EnvironmentSettings, parse_size, setting

LOG_FORMATS = ("text", "json")
DEFAULT_MODELS = ("quire-mini", "quire-chat")  #: are served where nobody names any; written out, since `--help` asks


@dataclass(frozen=True)
class ServerSettings(EnvironmentSettings):
    """Limits, safety and addresses of one server process.

    Every field with a sentence of help is an option of `quire serve`, and QUIRE_<NAME> in the environment.
    """

    host: str = setting("127.0.0.1", "The address to listen on; 0.0.0.0 is all of them.")
    port: int = setting(8000, "The port to listen on; 0 takes a free one.", at_least=0, at_most=65535)
    uds: str | None = setting(None, "Listen on a Unix socket of this path, and on no port.", metavar="PATH")
    root_path: str = setting("", "The prefix under which a proxy shows this server, such as /llm.", metavar="PREFIX")
    served_model_names: tuple[str, ...] = setting(
        (),
        "Names of the one --model: answers show the first, and each may be asked for.",
        name="served_model_name",
        metavar="NAME [NAME ...]",
    )
    accept_any_model_name: bool = setting(False, "A name that is not served asks the first model, in place of 404.")
    api_keys: tuple[str, ...] = setting(
        (),
        "Let in only who has this key; may be given several times. Also QUIRE_API_KEY=KEY,KEY.",
        name="api_key",
        in_environment=False,  # `load_api_keys` reads it: keys of several sources add up
        repr=False,
    )
    api_key_file: str | None = setting(None, "A file of keys, one a line.", metavar="FILE")
    admin_keys: tuple[str, ...] = setting(
        (),
        "A key that may also make public collections; may be given several times. Also QUIRE_ADMIN_KEY=KEY,KEY.",
        name="admin_key",
        in_environment=False,
        repr=False,
    )
    admin_key_file: str | None = setting(None, "A file of such keys, one a line.", metavar="FILE")
    routing: Path | None = setting(None, 'YAML file of the models and the policy for the model "auto".', metavar="FILE")
    rag_dir: Path | None = setting(
        None, "Keep collections of documents here, and serve them; without it there are none.", metavar="DIR"
    )
    embedder: str | None = setting(
        None,
        "What makes vectors of texts: a directory, a hub id, hashing (for tests), or all-MiniLM-L6-v2, which --rag-dir "
        "brings by itself.",
        metavar="NAME",
    )
    max_collections_per_key: int = setting(100, "Most collections of one key.", at_least=0)
    max_documents_per_key: int = setting(100_000, "Most documents of one key, of all its collections.", at_least=0)
    max_collection_bytes_per_key: int = setting(
        "1GiB", "Most bytes of one key's documents, their vectors with them.", read=parse_size, at_least=0
    )
    chat_template: str | None = setting(None, "A Jinja template in place of the models' own.", metavar="FILE")
    tool_call_parser: str = setting(
        AUTO,
        "How the models write calls of functions; auto tells by the chat template, none takes no tools.",
        choices=(AUTO, NONE, *TOOL_PARSERS),
    )
    reasoning_parser: str = setting(
        AUTO,
        "How the models write what they think; auto tells by the chat template, none leaves it in the content.",
        choices=(AUTO, NONE, *REASONING_PARSERS),
    )
    enable_force_include_usage: bool = setting(False, "Every stream ends with its usage, asked for or not.")
    open_metrics: bool = setting(False, "Let /metrics and /version answer without a key; they need one by default.")
    max_body_bytes: int = setting("8MiB", "A larger request gets 413.", read=parse_size, at_least=1)
    max_queue: int = setting(1024, "Most requests that wait, a model; further ones get 429.", at_least=1)
    load_wait_s: float = setting(
        120.0,
        "Seconds that requests wait for a model that is being loaded; then, or with 0 at once, they get 503.",
        name="load_wait",
        metavar="SECONDS",
        at_least=0,
    )
    idle_unload_s: float | None = setting(
        None,
        "Give an idle model's memory back after so many seconds without a request; the next one has it loaded again.",
        name="idle_unload",
        metavar="SECONDS",
        above=0,
    )
    max_concurrent_per_key: int | None = setting(
        None, "Most requests of one key at once; further ones get 429.", at_least=1
    )
    max_answers: int = setting(1024, "Answers that one body may ask for: its prompts times n.", at_least=1)
    max_stored_responses: int = setting(
        1000, "Responses that conversations may go on from by previous_response_id; 0 keeps none.", at_least=0
    )
    max_logprobs: int = setting(
        100, "Log-probabilities a token that one body may ask for; -1 is no limit, so all tokens' too.", at_least=-1
    )
    ignore_unknown_fields: bool = setting(
        False, "Ignore a body's unknown fields, in place of refusing them by name.", is_flag=True
    )
    trust_request_chat_template: bool = setting(
        False, "Let bodies bring a chat template of their own, which may run for ever.", is_flag=True
    )
    cors_origins: tuple[str, ...] = setting(
        (), "Let pages of this origin ask; may be given several times.", name="cors_origin"
    )
    ssl_certfile: str | None = setting(None, "Serve HTTPS with this certificate.", metavar="FILE")
    ssl_keyfile: str | None = setting(None, "Its private key.", metavar="FILE")
    ssl_keyfile_password: str | None = setting(
        None, "The key's password.", envvar="QUIRE_SSL_KEYFILE_PASSWORD", repr=False
    )
    ssl_ca_certs: str | None = setting(
        None, "Let in only clients with a certificate of these authorities.", metavar="FILE"
    )
    shutdown_timeout_s: float = setting(
        30.0, "Seconds for running requests to finish after SIGTERM.", name="shutdown_timeout", at_least=0
    )
    engine_process: bool = setting(
        True, "Each engine in a process of its own, which is started again if it dies; or all of them in this one."
    )
    hang_timeout_s: float = setting(
        120.0,
        "Seconds after which a step that has not ended hangs: its engine is ended, and started again.",
        name="hang_timeout",
        metavar="SECONDS",
        above=0,
    )
    keep_alive_s: float = setting(
        15.0,
        "Seconds without news after which a stream sends a comment.",
        name="keep_alive",
        metavar="SECONDS",
        above=0,
    )
    log_interval_s: float = setting(10.0, "Seconds between two log lines of load.", name="log_interval", above=0)
    log_format: str = setting("text", "text or json.", choices=LOG_FORMATS)
    tenant_secret: bytes | None = field(default=None, repr=False)
    """Names the tenants' KV blocks; the same after a restart, if kept."""
    heartbeat_timeout_s: float = 5  #: an engine that does not answer within this is hanging

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.heartbeat_timeout_s > 0:
            raise ValueError(f"heartbeat_timeout_s={self.heartbeat_timeout_s} must be above 0")
        object.__setattr__(self, "api_keys", tuple(dict.fromkeys((*self.api_keys, *self.admin_keys))))
        if any(not key for key in self.api_keys):
            raise ValueError("an API key is empty; leave it out or give it characters")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ValueError(f"root_path={self.root_path!r} is not a prefix of paths; write it as in /llm")
        if self.idle_unload_s is not None and not self.engine_process:
            raise ValueError(
                f"idle_unload={self.idle_unload_s:g} ends a model's process, and with no_engine_process it has none; "
                "leave one of the two out"
            )
        if self.uds == "":
            raise ValueError("uds is empty; name the path of a socket, or leave it out")
        if self.uds is not None and self.ssl_certfile is not None:
            raise ValueError("uds is a socket of this machine, where TLS protects nothing; leave one of the two out")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile is given without ssl_certfile; TLS needs the certificate too")

    def named(self, engines: dict[str, EngineConfig]) -> tuple[dict[str, EngineConfig], tuple[str, ...]]:
        """The engines under the names that they are served by, and the aliases of the only one.

        Raises:
            ValueError: there are names for one, and several engines.
        """
        names = self.served_model_names
        if not names:
            return engines, ()
        if len(engines) > 1:
            raise ValueError(
                f"--served-model-name names one model, and there are {len(engines)}; use --model NAME=SOURCE"
            )
        (config,) = engines.values()
        return {names[0]: config}, names[1:]
