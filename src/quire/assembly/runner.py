"""Make the runner of a loaded model, for each rank: KV pool, attention, and the links to the host and disk tiers."""

from __future__ import annotations

import logging
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from quire.assembly.draft_model import DraftModel, num_drafts
from quire.assembly.model import LoadedModel
from quire.assembly.step_memory import measure_step
from quire.attention.cpu_attention import CpuAttention
from quire.attention.interface import AttentionBackend, KVLayout
from quire.config import EngineConfig, format_size, num_batch_rows
from quire.core.block_keys import Namespace
from quire.kernels.loaded import describe_arithmetic, describe_triton, load_kernels, uses_triton
from quire.loading.known_digest import checkpoint_digest
from quire.memory_plan import PoolPlan, explained_if_full, plan_pool, plan_swap_slots
from quire.models.draft_head import HiddenStateReader
from quire.models.linear.quantized_weight import RECIPES
from quire.models.model_config import ModelConfig
from quire.ops.arrays import Array, DType, as_tensor, is_numpy, name_of
from quire.runner.batch import InputBatch
from quire.runner.drafter import Drafter
from quire.runner.head_drafter import HeadDrafter
from quire.runner.kv_cache import KVCache, make_cache
from quire.runner.model_runner import ModelRunner
from quire.runner.ranks.group import RankGroup
from quire.structured.matcher import Grammars
from quire.system.user_cache import is_default_kv_dir
from quire.text.tokenizer import Tokenizer
from quire.tiers.disk_link import DiskLink
from quire.tiers.disk_space import DiskSpace
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.layout.cipher import Cipher, open_cipher
from quire.tiers.swap_space import HostSpace, SwapSpace
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")


@dataclass(frozen=True)
class BuiltRunner:
    """A runner and the facts that the engine needs."""

    runner: ModelRunner
    plan: PoolPlan
    num_swap_slots: int  #: 0 without a swap tier
    namespace: Namespace
    prefix: list[int]  #: token ids of the pinned prefix
    eos_token_ids: tuple[int, ...]
    grammars: Grammars | None


def make_runner(config: EngineConfig, loaded: LoadedModel, *, memory_share: float = 1.0) -> BuiltRunner:
    """Make a runner with its own KV pool over a loaded model. All ranks call this; ValueError if it does not fit."""
    model, tokenizer, group = loaded.model, loaded.tokenizer, loaded.group
    prefix = _read_prefix(config, tokenizer)
    layout = KVLayout(model.attention_layers(), config.block_size)
    step_tokens = config.tokens_per_step(model.config.num_parameters, loaded.device)
    bytes_to_come = 0 if loaded.loader is None else loaded.loader.pending_memory()
    num_draft_states = num_drafts(config, loaded.device, model) if layout.has_states else 0
    bytes_to_come += num_draft_states * (layout.block_numel - layout.thin_numel) * model.kv_dtype.itemsize
    window = layout.window(step_tokens) if loaded.device == "cpu" or layout.has_states else None
    block_bytes = layout.block_bytes(model.kv_dtype.itemsize)
    draft_bytes = 0 if loaded.draft is None else loaded.draft.block_bytes(config.block_size)
    whole_blocks = 1 if window is None else window.WHOLE / window.thin
    memory_share *= block_bytes / (block_bytes + draft_bytes * whole_blocks)  # drafts' KV takes a part of the memory
    _check_device(loaded, layout)
    step_bytes = measure_step(config, loaded, layout, step_tokens, make_attention)
    plan = plan_pool(
        config,
        block_bytes=block_bytes,
        model_max_len=model.config.context_length,
        weight_bytes=loaded.weight_bytes,
        device=loaded.device,
        num_pinned_tokens=len(prefix),
        memory_share=memory_share,
        bytes_to_come=bytes_to_come,
        step_bytes=step_bytes,
        window=window,
    )
    num_swap_slots = plan_swap_slots(
        config, plan, device=loaded.device, memory_share=memory_share, bytes_to_come=bytes_to_come
    )
    if isinstance(group, RankGroup):
        plan, num_swap_slots = _agree(group, plan, num_swap_slots, len(prefix))
    cipher = open_cipher(config.kv_dir_key)
    whole = namespace_of(loaded, config, is_persistent=config.kv_dir is not None)
    namespace = replace(whole, parallel_slice=f"{group.rank}/{group.size}", encrypted_by=cipher.name if cipher else "")
    num_ids = plan.num_ids + num_draft_states
    num_records = plan.num_blocks * layout.num_records + num_draft_states * (layout.num_records - 1)
    with explained_if_full(config, f"allocate {plan.num_blocks} KV blocks", "a lower gpu_memory_utilization"):
        cache = make_cache(num_ids, num_records, layout, model.kv_dtype, loaded.device, plan.window is not None)
    worker = _make_transfer_worker(config, cache, plan.record_bytes, num_swap_slots, namespace.root(), cipher)
    eos_token_ids = _end_tokens(loaded)
    grammars = None if tokenizer is None else Grammars(tokenizer, model.config.vocab_size, eos_token_ids)
    runner = ModelRunner(
        model,
        cache,
        make_attention(cache.blocks, layout, model.dtype, cache.records, is_known=step_bytes is not None),
        InputBatch(num_batch_rows(config.max_num_seqs), plan.max_model_len, config.block_size),
        model.config.vocab_size,
        worker,
        _open_disk_tier(config, cache, plan.record_bytes, namespace, loaded, cipher),
        grammars,
        draws=group.rank == 0,
    )
    if layout.has_states:
        runner.batch.first_draft_block = plan.num_ids
    if loaded.draft is not None:
        runner.drafter = _make_drafter(loaded.draft, cache, plan, model.config.vocab_size)
    return BuiltRunner(runner, plan, num_swap_slots, namespace, prefix, eos_token_ids, grammars)


def _end_tokens(loaded: LoadedModel) -> tuple[int, ...]:
    """Return the model's end tokens. Ids beyond the vocabulary are ignored with a warning."""
    found = dict.fromkeys(loaded.source.eos_token_ids)
    if (tokenizer := loaded.tokenizer) is not None:
        own = (tokenizer.eos_token_id, tokenizer.eot_token_id)
        found |= dict.fromkeys(each for each in own if each is not None)
    size = loaded.model.config.vocab_size
    if unknown := [token for token in found if not 0 <= token < size]:
        logger.warning(
            "%s: the end tokens %s are ignored: the model's token ids end at %d", loaded.source.name, unknown, size - 1
        )
    return tuple(token for token in found if token not in unknown)


def _agree(group: RankGroup, plan: PoolPlan, num_swap_slots: int, num_pinned_tokens: int) -> tuple[PoolPlan, int]:
    """Return the largest pool and number of swap slots that fit every rank."""
    size = plan.block_size
    all_plans = group.exchange(
        "pool", (plan.num_blocks, plan.max_model_len, num_swap_slots, num_pinned_tokens // size * size)
    )
    num_blocks, longest, slots = (min(column) for column in list(zip(*all_plans, strict=True))[:3])
    pinned = max(each[3] for each in all_plans)
    agreed = replace(plan, num_blocks=num_blocks)
    agreed = replace(agreed, max_model_len=min(longest, agreed.longest(pinned // size)))
    if agreed != plan:
        logger.info("memory: the smallest of %d ranks has room for %d blocks", group.size, num_blocks)
    return agreed, slots


def _read_prefix(config: EngineConfig, tokenizer: Tokenizer | None) -> list[int]:
    if config.pin_prefix is None:
        return []
    if tokenizer is None:
        raise ValueError("pin_prefix is text and needs a tokenizer; leave out skip_tokenizer_init")
    try:
        text = Path(config.pin_prefix).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"pin_prefix={config.pin_prefix!r} cannot be read: {error}") from None
    if not text:
        raise ValueError(f"pin_prefix={config.pin_prefix!r} is empty")
    return tokenizer.encode(text)


def make_attention(
    blocks: Array, layout: KVLayout, dtype: DType | None = None, records: Any = None, *, is_known: bool = False
) -> AttentionBackend:
    """Return the fastest attention for the blocks' device and dtype; `dtype` is the queries', by default the same.
    `records`: `KVCache.records`. One that `is_known` is neither logged nor checked again."""
    dtype = dtype or blocks.dtype
    if is_numpy(blocks):
        kernels = load_kernels()
        logger.info("kernels: %s", kernels)
        if kernels.functions is not None and CpuAttention.supports(dtype):
            return CpuAttention(blocks, layout, kernels.functions, dtype)
    elif uses_triton(blocks.device.type):
        return _make_triton_attention(blocks, layout, records, is_known=is_known)
    elif not is_known:
        logger.info("attention: torch")
    from quire.attention.torch_attention import TorchAttention  # imports torch

    return TorchAttention(as_tensor(blocks), layout)


def _make_triton_attention(blocks: Array, layout: KVLayout, records: Any, *, is_known: bool) -> AttentionBackend:
    """Return attention by Triton's kernels. ValueError, with advice, if they do not work here."""
    from quire.attention.triton_attention import TritonAttention  # these import torch and Triton
    from quire.attention.triton_check import check_kernels
    from quire.ops.triton_check import check_operations

    attention = TritonAttention(blocks, layout, records)
    if is_known:
        return attention
    logger.info("attention: %s", describe_triton())
    check_kernels(attention)
    check_operations(blocks.dtype, blocks.device)
    return attention


def _check_device(loaded: LoadedModel, layout: KVLayout) -> None:
    """Try to draw tokens and to compute states on a GPU. ValueError, with advice, if that does not work here."""
    model = loaded.model
    if uses_triton(model.device):
        from quire.runner.triton_check import check_drawing  # imports torch and Triton

        check_drawing(model.config.vocab_size, model.dtype, model.device)
    if layout.has_states and model.device == "cuda":
        record = layout.thin_numel * model.kv_dtype.itemsize
        if not uses_triton(model.device) or layout.num_records == 1 or record % 128:
            raise ValueError(
                f"{loaded.source.name} has recurrent states: on a GPU they need Triton, QUIRE_KERNELS unset, blocks "
                f"of a multiple of 128 bytes of KV, not {record}; install triton, raise block_size, or use device cpu"
            )
        from quire.models.states.triton_check import check_states

        check_states(model)


def _make_drafter(draft: DraftModel, served_cache: KVCache, plan: PoolPlan, vocab_size: int) -> Drafter:
    """Make an engine's drafter. ValueError if texts may become longer than the draft model can read."""
    model, block_size = draft.model, plan.block_size
    if model.config.context_length < plan.max_model_len:
        raise ValueError(
            f"the draft model reads {model.config.context_length} tokens, and max_model_len is {plan.max_model_len}; "
            "lower max_model_len, or name another draft model"
        )
    layout = KVLayout(model.attention_layers(), block_size)
    own = KVCache(plan.num_ids, layout, model.dtype, model.device) if draft.has_own_kv else None
    attention = make_attention((own or served_cache).blocks, layout, model.dtype)
    if isinstance(model, HiddenStateReader):
        return HeadDrafter(model, attention, vocab_size, served_cache, own)
    return Drafter(model, attention, vocab_size, own)


def _make_transfer_worker(
    config: EngineConfig, cache: KVCache, block_bytes: int, num_slots: int, root: bytes, cipher: Cipher | None
) -> TransferWorker | None:
    if not num_slots:
        return None
    space: SwapSpace
    if config.swap_dir is not None:
        space = DiskSpace(config.swap_dir, num_slots, block_bytes, root, cipher)
        place = f"a file in {config.swap_dir}"
    else:
        try:
            space = HostSpace(num_slots, block_bytes, pinned=cache.device != "cpu")
        except (OSError, RuntimeError) as error:
            size = format_size(num_slots * block_bytes)
            raise ValueError(f"cannot allocate {size} of host memory to swap to: {error}; lower swap_space") from None
        place = "host memory"
    limit = "" if config.swap_bandwidth is None else f", at most {format_size(config.swap_bandwidth)} a second"
    logger.info("swap: up to %d blocks (%s) in %s%s", num_slots, format_size(num_slots * block_bytes), place, limit)
    return TransferWorker(cache.blocks, space, bandwidth=config.swap_bandwidth)


def _open_disk_tier(
    config: EngineConfig, kv: KVCache, block_bytes: int, namespace: Namespace, model: LoadedModel, cipher: Cipher | None
) -> DiskLink | None:
    """Open the KV directory, if any. The default one is used by all ranks or by none."""
    if config.kv_dir is None:
        return None
    store = None
    try:
        store = BlockStore(
            config.kv_dir,
            model=model.source.name,
            root=namespace.root(),
            block_bytes=block_bytes,
            max_bytes=config.kv_dir_size,
            facts=asdict(namespace),
            dtype="" if config.kv_dir_coding == "off" else name_of(kv.blocks.dtype),
            cipher=cipher,
        )
    except ValueError as error:
        if not is_default_kv_dir(config.kv_dir):
            raise
        logger.warning("prompts' KV is not kept on disk: %s", error)
    if isinstance(group := model.group, RankGroup) and not all(group.exchange("disk", store is not None)):
        if store is not None:
            store.close()
        store = None
    if store is None:
        return None
    logger.info(
        "kv_dir: %d blocks (%s) of this model in %s, at most %s for all models",
        store.num_blocks,
        format_size(store.num_bytes),
        config.kv_dir,
        format_size(config.kv_dir_size),
    )
    link = DiskLink(kv.blocks, store, block_bytes)
    link.always_codes = config.kv_dir_coding == "on"
    return link


def namespace_of(loaded: LoadedModel, config: EngineConfig, *, is_persistent: bool = False) -> Namespace:
    """Return the namespace of the engine's KV blocks. If it `is_persistent`, unknown digests are computed
    (ModelLoadError if the files changed after loading); else the weights get a name unique to this process."""
    weights, group = loaded.weights, loaded.group
    if weights is None and is_persistent and group.rank == 0:
        assert loaded.source.path is not None
        weights = checkpoint_digest(loaded.source.path, files=loaded.files, use_tqdm=config.use_tqdm)
    name = weights or f"process:{uuid.uuid4().hex}"
    if isinstance(group, RankGroup):
        name = group.exchange("weights", name)[0]
    return make_namespace(
        loaded.model.config,
        weights=name,
        dtype=name_of(loaded.model.dtype),
        quantization=loaded.model.quantization,
        block_size=config.block_size,
        device=loaded.device,
        kv_cache_dtype=config.kv_cache_dtype,
    )


def make_namespace(
    shape: ModelConfig,
    *,
    weights: str,
    dtype: str,
    block_size: int,
    device: str,
    quantization: str = "none",
    kv_cache_dtype: str = "auto",
) -> Namespace:
    """Return the namespace of a whole model's KV blocks, computed by this machine. `weights` is their digest."""
    windows = "/windows-last" if any(layer.window for layer in shape.layers) else ""  # order of a block's parts
    return Namespace(
        weights=weights,
        dtype=dtype,
        kv_dtype=dtype if kv_cache_dtype == "auto" else kv_cache_dtype,
        geometry=f"{shape.num_layers}x{shape.num_kv_heads}x{shape.head_dim}/{block_size}{windows}",
        rope=repr(shape.rope),
        arithmetic=shape.arithmetic,
        computed_by=describe_arithmetic(device),
        quantization=RECIPES[device][quantization],
    )
