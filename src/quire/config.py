"""What an operator may choose about an engine, as frozen dataclasses.

Knows names, defaults and ranges; imports neither torch nor models.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.settings import REQUIRED, EnvironmentSettings, check_unit, parse_size, setting

DTYPES = ("auto", "float32", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "cuda")
#: Bits of linear layers' weights: as they are stored, or fewer. Activations get 8 bits with them.
QUANTIZATIONS = ("none", "int8", "int4")
LOAD_FORMATS = ("auto", "safetensors", "random")
RECOVERY_POLICIES = ("cost", "swap", "recompute")
#: More than any machine has cores; far beyond it the system refuses threads, in the middle of loading. A config may be
#: written on another machine than its own, so the bound is not that of the cores that there are here.
MAX_THREADS = 1024
DEFAULT_STEP_TOKENS = 2048
DEFAULT_TOKENS_BESIDE_STREAMS = 512
_WEIGHTS_OF_WHOLE_STEPS = 2_000_000_000  #: up to so many, 2,048 tokens take two cores some 20 seconds at most


def format_size(num_bytes: float) -> str:
    """A size for people, in binary units: ``988.1 MiB``."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


@dataclass(frozen=True)
class EngineConfig(EnvironmentSettings):
    """One engine: a model, its KV pool and its limits.

    Every field is an option of the same name on the command line, and QUIRE_<NAME> in the environment.
    """

    model: str = setting(REQUIRED, "A directory, a hub id, an embedded name or a preset such as random:qwen2.5-0.5b.")
    dtype: str = setting(
        "auto", "Weights and arithmetic: auto (the checkpoint's), float32, bfloat16, float16.", choices=DTYPES
    )
    quantization: str = setting(
        "none",
        "Linear layers' weights get fewer bits while they are loaded (on cpu): int8, int4, or none.",
        choices=QUANTIZATIONS,
    )
    device: str = setting("auto", "auto (cuda if there is one), cpu or cuda.", choices=DEVICES)
    load_format: str = setting(
        "auto",
        "auto or safetensors (read the files), random (seeded weights of the same shapes).",
        choices=LOAD_FORMATS,
    )
    storage_bandwidth: int | None = setting(
        None,
        "Most bytes a second that weights are read with, such as 125MB: for experiments on fast storage.",
        read=parse_size,
        at_least=1,
    )
    load_overlap: bool = setting(False, "Compute while later layers are still being read.")
    tensor_parallel_size: int = setting(
        1, "Processes (ranks) that hold the model together, a GPU each, or a share of the CPU's cores.", at_least=1
    )
    block_size: int = setting(16, "Tokens a KV block holds.", at_least=1)
    num_kv_blocks: int | None = setting(
        None, "Exactly this many KV blocks (for experiments with preemption).", at_least=1
    )
    kv_cache_memory: int | None = setting(
        None,
        "Memory for the KV pool, such as 4GiB; by default a share of what is free.",
        read=parse_size,
        at_least=1,
    )
    max_num_seqs: int = setting(64, "Most sequences that run at once.", at_least=1)
    max_num_batched_tokens: int | None = setting(
        None,
        "Token budget of a step. By default 2048 (on CPU fewer for models above 2e9 weights), and beside streams 512, "
        "or what target_itl allows.",
        at_least=1,
    )
    target_itl: float | None = setting(
        None,
        "Milliseconds between two tokens of a stream, that prompts beside it leave: chunks of these are as large as "
        "steps within it are predicted to allow.",
        above=0,
    )
    max_model_len: int | None = setting(
        None, "Longest sequence, prompt and output; by default the model's own, capped to the pool.", at_least=1
    )
    enable_prefix_caching: bool = setting(True, "Find blocks that earlier requests computed.")
    seed: int = setting(0, "Seed of requests that bring none, and of random weights.")
    skip_tokenizer_init: bool = setting(False, "Token ids in, token ids out; no tokenizer is read.")
    escape_special_tokens: bool = setting(
        False, "Special tokens in prompts and messages are plain text, and not the model's own marks."
    )
    watermark: float = setting(
        0.01, "Share of the pool that admission leaves free for running requests to grow.", at_least=0, below=1
    )
    pin_prefix: str | None = setting(None, "File whose text is computed at start and whose blocks are kept.")
    num_threads: int | None = setting(
        None, "CPU threads for tensor work; by default one a core of one NUMA node.", at_least=1, at_most=MAX_THREADS
    )
    use_tqdm: bool = setting(True, "Show a progress bar while loading.")
    last_stage: int | None = setting(None, "Of a model packed in stages, load no further than this one.", at_least=1)
    promotion_policy: str = setting(
        "cost",
        "What becomes of requests in flight when more of a model in stages is there: pin (they finish on their stage), "
        "recompute, or cost (whichever is cheaper).",
        choices=("cost", "pin", "recompute"),
    )
    recovery_policy: str = setting(
        "cost",
        "How a preempted request resumes: swap (load its saved blocks), recompute, or cost (whichever is faster).",
        choices=RECOVERY_POLICIES,
    )
    swap_space: int | None = setting(
        None,
        "Most that swapped blocks take, such as 4GiB; 0 is no swap tier. By default 4GiB with swap_dir or on cuda.",
        read=parse_size,
        at_least=0,
    )
    swap_dir: str | None = setting(None, "Swap to a file of this process in this directory, and not to host memory.")
    swap_bandwidth: int | None = setting(
        None, "Most bytes a second that are swapped, such as 200MB.", read=parse_size, at_least=1
    )
    kv_dir: str | None = setting(
        None, "Keep documents' KV in this directory: for the next start, and for other processes that name it."
    )
    kv_dir_size: int = setting(
        16 * 2**30, "Most that kv_dir takes, of all models and processes together.", read=parse_size, at_least=2**20
    )
    kv_dir_keep_prompts: bool = setting(False, "Keep the KV of whole prompts in kv_dir, and not of documents alone.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError(
                "model is empty; name a directory, a hub id, an embedded model (quire-mini) or a preset "
                "(random:qwen2.5-0.5b)"
            )
        if self.quantization != "none" and self.dtype == "float16":
            raise ValueError(
                f"quantization={self.quantization} is not there for dtype=float16; use bfloat16, float32 or auto"
            )
        self.check_quantization(self.device)
        if self.num_kv_blocks is not None and self.kv_cache_memory is not None:
            raise ValueError("num_kv_blocks and kv_cache_memory both size the pool; give one of them")
        check_unit(kv_cache_memory=self.kv_cache_memory, swap_space=self.swap_space)
        if self.swap_dir == "":
            raise ValueError("swap_dir is empty; name a directory, or leave it out")
        if self.swap_dir is not None and self.swap_space == 0:
            raise ValueError("swap_dir is a place for a swap tier, and swap_space=0 wants none; leave one of them out")
        self.has_swap_tier(self.device)
        if self.kv_dir == "":
            raise ValueError("kv_dir is empty; name a directory, or leave it out")
        if self.kv_dir is None and self.kv_dir_keep_prompts:
            raise ValueError("kv_dir_keep_prompts is about a KV directory, and there is none; give kv_dir")
        if self.kv_dir is not None and not self.enable_prefix_caching:
            raise ValueError("what is in kv_dir is found by prefix caching; leave enable_prefix_caching on")

    def tokens_per_step(self, num_parameters: int, device: str) -> int:
        """The most that any step computes, of a model with so many weights.

        By default fewer on a CPU where the model is large: nothing can be begun, or given up, in the midst of a step.
        """
        if self.max_num_batched_tokens is not None:
            return self.max_num_batched_tokens
        share = 1.0 if device != "cpu" else min(1.0, _WEIGHTS_OF_WHOLE_STEPS / num_parameters)
        return max(DEFAULT_TOKENS_BESIDE_STREAMS, int(share * DEFAULT_STEP_TOKENS) // 256 * 256)

    @property
    def tokens_beside_streams(self) -> int | None:
        """The most that a step with streams computes; None where only `target_itl` says it, or what any step may."""
        is_open = self.max_num_batched_tokens is None and self.target_itl is None
        return DEFAULT_TOKENS_BESIDE_STREAMS if is_open else None

    def check_quantization(self, device: str) -> None:
        """Refuse quantized weights where there are no kernels for them.

        Args:
            device: cpu or cuda; auto may be either.

        Raises:
            ValueError: they are asked for on a GPU.
        """
        if self.quantization != "none" and device == "cuda":
            raise ValueError(
                f"quantization={self.quantization} is not supported on device=cuda; leave it out, or use device=cpu"
            )

    def has_swap_tier(self, device: str) -> bool:
        """Whether there is a place for swapped blocks: wherever one is asked for, and by default in a GPU's host. On a
        CPU that memory is better in the pool.

        Args:
            device: cpu or cuda; auto may be either.

        Raises:
            ValueError: there is none, and another option is about it.
        """
        if self.swap_space is not None:
            has_one = self.swap_space > 0
        else:
            has_one = self.swap_dir is not None or device != "cpu"
        if self.swap_bandwidth and not has_one:
            raise ValueError("swap_bandwidth is about a swap tier, and there is none; give swap_dir or swap_space")
        return has_one


@dataclass(frozen=True)
class SchedulerConfig:
    """The numbers that scheduling needs, once the model and the pool are known."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_tokens_beside_streams: int | None = None  #: of a step that also brings streams their next tokens; None: as many
    target_itl_s: float | None = None  #: that such a step is to take at most
    max_model_len: int = 2048
    enable_prefix_caching: bool = True
    watermark_blocks: int = 0
    num_swap_slots: int = 0  #: blocks that the swap tier holds; 0 is no tier
    block_bytes: int = 0  #: of one block, for predicting what moving it costs
    has_disk_tier: bool = False  #: blocks are found and kept in a KV directory
    keep_prompts: bool = False  #: keep whole prompts on disk, and not only documents
    enable_lookahead: bool = True  #: load prefixes from other tiers for waiting requests
    promotion_policy: str = "cost"  #: see `EngineConfig`

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.has_disk_tier and not self.enable_prefix_caching:
            raise ValueError("blocks on disk are found by prefix caching; leave enable_prefix_caching on")
        if self.max_model_len > self.num_blocks * self.block_size:
            raise ValueError(
                f"max_model_len={self.max_model_len} does not fit in {self.num_blocks} blocks of {self.block_size} "
                f"tokens; lower max_model_len to {self.num_blocks * self.block_size} or enlarge the pool"
            )
