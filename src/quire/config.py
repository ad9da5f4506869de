"""Options of an engine, as frozen dataclasses: names, defaults, ranges. Imports no models."""

from __future__ import annotations

from dataclasses import dataclass, field

from quire.settings import REQUIRED, EnvironmentSettings, check_unit, parse_count, parse_size, setting

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "cuda")
#: Formats of linear layers' weights; none keeps the stored one. Their activations get 8 bits.
QUANTIZATIONS = ("none", "int8", "int4")
KV_CACHE_DTYPES = ("auto", "int8")
WEIGHT_LAYOUTS = ("auto", "plain", "packed12")
LOAD_FORMATS = ("auto", "safetensors", "random")
RECOVERY_POLICIES = ("cost", "swap", "recompute")
#: More cores than any machine has. Far beyond it the system refuses threads in the middle of loading. The config may be
#: written on another machine, so this machine's cores do not count.
MAX_THREADS = 1024
DEFAULT_STEP_TOKENS = 2048
DEFAULT_TOKENS_BESIDE_STREAMS = 512
_WEIGHTS_OF_WHOLE_STEPS = 2_000_000_000  #: with up to so many, two cores compute 2,048 tokens in some 20 seconds


def format_size(num_bytes: float) -> str:
    """Format a size in binary units: ``988.1 MiB``."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


@dataclass(frozen=True)
class HubOptions:
    """How models are downloaded from the hub; None leaves the choice to huggingface_hub."""

    revision: str | None = None
    download_dir: str | None = None
    hf_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class EngineConfig(EnvironmentSettings):
    """One engine: a model, its KV pool and its limits.

    Every field is an option of the same name on the command line, and QUIRE_<NAME> in the environment.
    """

    model: str = setting(
        REQUIRED,
        "A directory, URL, hub id, embedded name or a preset such as random:qwen2.5-0.5b.",
    )
    revision: str | None = setting(None, "Branch, tag or commit of a hub model.")
    download_dir: str | None = setting(None, "Directory for hub models; HF_HOME/hub by default.")
    hf_token: str | None = setting(
        None, "Token for gated and private hub models; HF_TOKEN or `hf auth login` by default.", repr=False
    )
    dtype: str = setting(
        "auto", "Weights and arithmetic: auto (the checkpoint's), float32, bfloat16, float16.", choices=DTYPES
    )
    quantization: str = setting(
        "none", "Quantize linear layers while loading: int8, int4 or none.", choices=QUANTIZATIONS
    )
    weights: str = setting(
        "auto",
        "Layout of weights in bfloat16, which loses nothing: plain, packed12 (three quarters of the memory), or auto "
        "(the faster one; plain on cuda).",
        choices=WEIGHT_LAYOUTS,
    )
    device: str = setting("auto", "auto (cuda if there is one), cpu or cuda.", choices=DEVICES)
    load_format: str = setting(
        "auto",
        "auto or safetensors (read the files), random (seeded weights of the same shapes).",
        choices=LOAD_FORMATS,
    )
    generation_config: str = setting(
        "auto", "Sampling defaults: auto (generation_config.json) or vllm (none).", choices=("auto", "vllm")
    )
    storage_bandwidth: int | None = setting(
        None,
        "Maximum read bandwidth for weights in bytes a second, such as 125MB: for experiments on fast storage.",
        read=parse_size,
        at_least=1,
    )
    lora: tuple[str, ...] = setting(
        (),
        "LoRA adapter in PEFT's format, which requests name as their model; repeat the option for several.",
        metavar="NAME=DIR",
    )
    load_overlap: bool = setting(False, "Compute with the first layers while later ones load.")
    tensor_parallel_size: int = setting(
        1, "Number of processes (ranks) that share the model, with a GPU or a share of the CPU cores each.", at_least=1
    )
    enforce_eager: bool = setting(False, "Record no passes (on cuda: no CUDA graphs), for comparison.")
    block_size: int = setting(16, "Tokens per KV block.", at_least=1)
    check_memory: bool = setting(True, "Refuse a model whose weights and KV do not fit into the free memory.")
    num_kv_blocks: int | None = setting(None, "Exact number of KV blocks, for experiments with preemption.", at_least=1)
    kv_cache_memory: int | None = setting(
        None,
        "Memory for the KV pool, such as 4GiB; by default a share of the free memory.",
        read=parse_size,
        at_least=1,
    )
    gpu_memory_utilization: float = setting(
        0.9, "Share of a GPU's memory for weights, KV and steps, by which the KV pool is sized.", above=0, at_most=1
    )
    kv_cache_dtype: str = setting(
        "auto",
        "KV cache in memory and on disk: auto (the dtype of the arithmetic), or int8 (on cpu; half of bfloat16's bytes "
        "and slightly different answers).",
        choices=KV_CACHE_DTYPES,
    )
    max_num_seqs: int = setting(64, "Maximum number of running sequences.", at_least=1)
    max_num_batched_tokens: int | None = setting(
        None,
        "Token budget of a step. By default 2048 (fewer on CPU above 2e9 weights); beside decoding requests 512, or as "
        "many as target_itl allows.",
        read=parse_count,
        at_least=1,
    )
    target_itl: float | None = setting(
        None,
        "Target for the milliseconds between two tokens of a request: limits the chunks of prompts beside it.",
        above=0,
    )
    max_model_len: int | None = setting(
        None,
        "Maximum tokens of a sequence, such as 8192 or 8k; by default the model's own limit, capped to the pool.",
        read=parse_count,
        at_least=1,
    )
    speculation: str = setting(
        "auto",
        "Draft tokens, which change no output: lookup (repeat text), auto (where bits depend on no batch), off.",
        choices=("auto", "lookup", "off"),
    )
    speculative_model: str | None = setting(
        None,
        "Model that drafts, named as in model; mtp: the checkpoint's draft head; int4 or int8: the served model itself "
        "with fewer bits.",
        metavar="NAME",
    )
    speculative_tokens: int = setting(
        10,
        "Maximum draft tokens of a sequence in a step.",
        at_least=1,
    )
    enable_prefix_caching: bool = setting(True, "Reuse blocks of earlier requests.")
    seed: int = setting(0, "Seed of requests without one, and of random weights.")
    skip_tokenizer_init: bool = setting(False, "Token ids in, token ids out; load no tokenizer.")
    escape_special_tokens: bool = setting(False, "Read special tokens in prompts and messages as plain text.")
    watermark: float = setting(
        0.01, "Share of the pool that stays free for running requests at admission.", at_least=0, below=1
    )
    pin_prefix: str | None = setting(None, "File with text to compute at start; its blocks stay in the pool.")
    num_threads: int | None = setting(
        None, "CPU threads for tensor work; by default one per core of one NUMA node.", at_least=1, at_most=MAX_THREADS
    )
    use_tqdm: bool = setting(True, "Show a progress bar while loading.")
    last_stage: int | None = setting(None, "Last stage to load of a model packed in stages.", at_least=1)
    promotion_policy: str = setting(
        "cost",
        "Requests in flight at a promotion to the next stage: pin (finish on their stage), recompute, or cost (the "
        "cheaper of both).",
        choices=("cost", "pin", "recompute"),
    )
    recovery_policy: str = setting(
        "cost",
        "How a preempted request resumes: swap (load its saved blocks), recompute, or cost (whichever is faster).",
        choices=RECOVERY_POLICIES,
    )
    swap_space: int | None = setting(
        None,
        "Capacity of the swap tier, such as 4GiB; 0 disables it. By default 4GiB with swap_dir or on cuda.",
        read=parse_size,
        at_least=0,
    )
    swap_dir: str | None = setting(None, "Swap to a file in this directory instead of host memory.")
    swap_bandwidth: int | None = setting(
        None, "Maximum swap bandwidth in bytes a second, such as 200MB.", read=parse_size, at_least=1
    )
    kv_dir: str | None = setting(
        None, "Keep documents' KV in this directory, for later starts and for other processes."
    )
    kv_dir_size: int = setting(
        16 * 2**30, "Size limit of kv_dir, for all models and processes together.", read=parse_size, at_least=2**20
    )
    kv_dir_keep_prompts: bool = setting(
        False, "Keep the KV of whole prompts and answers in kv_dir, not only of documents."
    )
    kv_dir_key: str | None = setting(
        None, "File with 32 bytes (openssl rand -base64 32), by which KV in kv_dir and swap_dir is encrypted."
    )
    kv_dir_coding: str = setting(
        "auto", "Code KV in kv_dir, losslessly: on, off, auto (where that loads sooner).", choices=("auto", "on", "off")
    )

    kv_audit_rate: float = setting(
        6.0,
        "Audits per hour of idle time: KV found in memory or on disk is computed again, and compared bit by bit; 0 for "
        "none.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError(
                "model is empty; name a directory, a hub id, an embedded model (quire-mini) or a preset "
                "(random:qwen2.5-0.5b)"
            )
        if self.quantization != "none" and self.dtype == "float16" and self.device == "cpu":
            raise ValueError(
                f"quantization={self.quantization} is not available for dtype=float16 on cpu; use bfloat16, float32 or "
                "auto"
            )
        if self.num_kv_blocks is not None and self.kv_cache_memory is not None:
            raise ValueError("num_kv_blocks and kv_cache_memory both size the pool; give one of them")
        check_unit(kv_cache_memory=self.kv_cache_memory, swap_space=self.swap_space)
        _ = self.adapters
        if self.swap_dir == "":
            raise ValueError("swap_dir is empty; name a directory, or leave it out")
        if self.swap_dir is not None and self.swap_space == 0:
            raise ValueError("swap_dir needs a swap tier, and swap_space=0 disables it; leave one of them out")
        self.has_swap_tier(self.device)
        if self.speculative_model is not None and self.speculation == "off":
            raise ValueError("speculative_model needs drafts; leave out speculation=off")
        if self.kv_dir == "":
            raise ValueError("kv_dir is empty; name a directory, or leave it out")
        if self.kv_dir is None and self.kv_dir_keep_prompts:
            raise ValueError("kv_dir_keep_prompts needs kv_dir")
        if self.kv_dir is not None and not self.enable_prefix_caching:
            raise ValueError("kv_dir needs prefix caching; leave enable_prefix_caching on")

    @property
    def adapters(self) -> dict[str, str]:
        """The directories of LoRA adapters by name."""
        found: dict[str, str] = {}
        for text in self.lora:
            name, _, directory = text.partition("=")
            if not name or not directory:
                raise ValueError(f"lora={text!r} is not NAME=DIR")
            if name in found:
                raise ValueError(f"two adapters are named {name!r}; give one of them another name")
            found[name] = directory
        return found

    @property
    def sizes_pool(self) -> bool:
        """Whether an option sizes the KV pool."""
        return self.num_kv_blocks is not None or self.kv_cache_memory is not None

    @property
    def hub(self) -> HubOptions:
        return HubOptions(self.revision, self.download_dir, self.hf_token)

    def tokens_per_step(self, num_parameters: int, device: str) -> int:
        """Return the maximum tokens of a step.

        Fewer by default for a large model on a CPU: requests start and abort only between steps.
        """
        if self.max_num_batched_tokens is not None:
            return self.max_num_batched_tokens
        share = 1.0 if device != "cpu" else min(1.0, _WEIGHTS_OF_WHOLE_STEPS / num_parameters)
        return max(DEFAULT_TOKENS_BESIDE_STREAMS, int(share * DEFAULT_STEP_TOKENS) // 256 * 256)

    @property
    def tokens_beside_streams(self) -> int | None:
        """Maximum tokens of a step with decoding requests; None without a limit of its own."""
        is_open = self.max_num_batched_tokens is None and self.target_itl is None
        return DEFAULT_TOKENS_BESIDE_STREAMS if is_open else None

    def has_swap_tier(self, device: str) -> bool:
        """Whether there is a swap tier: by default only on a GPU. On a CPU the memory is better used in the pool.

        Raises ValueError if there is none, and another option needs it. Device auto may be cpu or cuda.
        """
        if self.swap_space is not None:
            has_one = self.swap_space > 0
        else:
            has_one = self.swap_dir is not None or device != "cpu"
        if self.swap_bandwidth and not has_one:
            raise ValueError("swap_bandwidth needs a swap tier; give swap_dir or swap_space")
        return has_one


def num_spare_seats(max_num_seqs: int) -> int:
    """Return how many sequences may run beyond `max_num_seqs`, for tenants that run few (`core.admission`)."""
    return max(1, max_num_seqs // 8)


def num_batch_rows(max_num_seqs: int) -> int:
    """Return the most sequences of a step: all seats, spare ones included, and a waiting request's document."""
    return max_num_seqs + num_spare_seats(max_num_seqs) + 1


@dataclass(frozen=True)
class BlockWindow:
    """Memory of blocks of a model with sliding windows or recurrent states. Layers with a window read the last `tokens`
    only, so a block behind them may be *thin*: without these layers' KV. States need the block of the last token whole,
    and are treated as windows of two tokens; blocks that a step passes over are thin from the start."""

    WHOLE = 2**16  #: memory of a whole block

    tokens: int  #: the widest window, the token itself included
    thin: int  #: memory of a thin block, in 1 / WHOLE of a whole one
    num_whole: int  #: blocks of a sequence that a step may read or write whole
    has_states: bool = False
    num_records: int = 1  #: in which other tiers store a whole block; a thin one with states is the first of them

    @classmethod
    def with_states(cls, num_records: int, thin: int = 0) -> BlockWindow:
        """Return what blocks with states need, that take `num_records` records with their KV."""
        return cls(2, thin or -(-cls.WHOLE // num_records), 3, has_states=True, num_records=num_records)

    def room(self, num_blocks: int) -> int:
        """Return how many whole blocks take the memory of a sequence with `num_blocks` blocks."""
        num_thin = max(0, num_blocks - self.num_whole)
        return num_blocks - num_thin + -(-num_thin * self.thin // self.WHOLE)

    def longest(self, room: int) -> int:
        """Return the most blocks of one sequence in the memory of `room` whole blocks."""
        return min(room, self.num_whole) + max(0, room - self.num_whole) * self.WHOLE // self.thin

    def num_ids(self, num_blocks: int) -> int:
        """Return how many blocks a pool with the memory of `num_blocks` whole ones may have."""
        return num_blocks * self.WHOLE // self.thin


@dataclass(frozen=True)
class DraftFacts:
    """A runner's draft model, as far as its cost depends on it."""

    share: float  #: bytes of its weights, by those of the served model
    has_own_kv: bool  #: else it need not read what the served model has read


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits and sizes for the scheduler, once the model and the pool are known."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_tokens_beside_streams: int | None = None  #: limit of a step with decoding requests; None: the same
    target_itl_s: float | None = None  #: target for the seconds of such a step
    max_model_len: int = 2048
    enable_prefix_caching: bool = True
    watermark_blocks: int = 0
    num_swap_slots: int = 0  #: blocks of the swap tier; 0 without one
    block_bytes: int = 0  #: bytes per block, or record of one with a state, for the cost of transfers
    swap_is_synchronous: bool = False  #: transfers of the swap tier stop the engine, as in some simulated ones
    has_disk_tier: bool = False  #: there is a KV directory
    keep_prompts: bool = False  #: keep whole prompts on disk, and not only documents
    enable_lookahead: bool = True  #: load prefixes from other tiers for waiting requests
    promotion_policy: str = "cost"  #: see `EngineConfig`
    num_speculative_tokens: int = 0  #: most draft tokens of a sequence in a step; 0 for none
    draft_model: DraftFacts | None = None
    window: BlockWindow | None = None  #: `num_blocks` is then the memory of the pool, in whole blocks

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.has_disk_tier and not self.enable_prefix_caching:
            raise ValueError("the disk tier needs prefix caching; leave enable_prefix_caching on")
        longest = self.num_blocks if self.window is None else self.window.longest(self.num_blocks)
        if self.max_model_len > longest * self.block_size:
            raise ValueError(
                f"max_model_len={self.max_model_len} does not fit in {self.num_blocks} blocks of {self.block_size} "
                f"tokens; lower max_model_len to {longest * self.block_size} or enlarge the pool"
            )
