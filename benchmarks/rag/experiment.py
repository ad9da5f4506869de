"""Questions about documents, answered by two models at once, with and without document KV on disk.

For every policy the same questions are asked in each way, on fresh engines: without a KV directory (`off`, with the
device's prefix cache), with an empty one (`cold`), with the KV of every document (`warm`), and without documents
(`bare`), the lower bound. The experiment of Multi-Model RAG-DCache (Seo et al., Sogang University and ETRI).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.rag.corpus import Corpus, choose_embedder, tokenizer_of
from benchmarks.rag.figures import AUTO_RATE_SHARE, BARE, COLD, EXACT, OFF, WARM, Trial, make_report
from benchmarks.rag.generated import generate
from benchmarks.rag.picture import draw
from benchmarks.rag.play import Joiner, Load, Played, play, running
from benchmarks.rag.questions import ROUND_ROBIN, Plan, choose, draw_by_zipf, roles_of
from benchmarks.rag.settings import RagSettings
from benchmarks.rag.warm import read_raw, warm
from benchmarks.routing_accuracy import LabelledQuestion, read_labelled
from quire.async_engine.messages import EngineUnavailable
from quire.bench.progress import progress
from quire.config import EngineConfig
from quire.core.block_keys import PUBLIC_ONLY
from quire.prompt import Prompt
from quire.rag.embedder import HASHING
from quire.rag.prompt_template import join_question, share
from quire.routing.router import Router, RoutingConfig, parse_models
from quire.system.threads import default_num_threads
from quire.system.worker_process import WorkerError
from quire.text.tokenizer import Tokenizer

_EXAMPLES = Path(__file__).parents[2] / "train" / "routing"

PRESETS = {
    "embedded": "small=quire-chat,large=quire-mini,reading=quire-mini,chat=quire-chat",
    "paper": "small=random:dialogpt-small,large=random:opt-1.3b",
}


@dataclass
class Outcome:
    """All measurements."""

    trials: list[Trial] = field(default_factory=list)
    warm_bytes: int = 0  #: of KV that was made before the warm runs
    remarks: list[str] = field(default_factory=list)


def run(config: EngineConfig, settings: RagSettings, json: Path | None = None, plot: Path | None = None) -> bool:
    """Measure and publish.

    Returns:
        Whether every way gave the same tokens, if the dtype allows a comparison.

    Raises:
        ValueError: a file, a policy or a model is invalid.
    """
    if config.kv_dir is not None and not Path(config.kv_dir).is_dir():
        raise ValueError(f"--kv-dir {config.kv_dir} is no directory; name one on the disk that is to be measured")
    models = parse_models(settings.models or PRESETS[settings.preset])
    roles = {policy: roles_of(policy, models) for policy in settings.policy}
    try:
        with _quiet(), tempfile.TemporaryDirectory(prefix="quire-rag-", dir=config.kv_dir) as directory:
            plans, configs, outcome = _measure(config, settings, roles, Path(directory))
    except (EngineUnavailable, WorkerError) as error:
        raise ValueError(str(error)) from None
    engine = next(iter(configs.values()))
    report = make_report(settings, plans, outcome.trials, asdict(engine), outcome.warm_bytes)
    report.notes += outcome.remarks
    report.publish(json, plot, lambda figure: draw(figure, report))
    return engine.dtype != EXACT or not any(figure.get("num_different") for figure in report.figures)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("quire")
    before = logger.level
    logger.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(before)


def _measure(
    config: EngineConfig, settings: RagSettings, roles: Mapping[str, Mapping[str, str]], directory: Path
) -> tuple[list[Plan], dict[str, EngineConfig], Outcome]:
    outcome = Outcome()
    models = dict.fromkeys(name for each in roles.values() for name in each.values())
    counted = {name: tokenizer_of(name) for name in models}
    tokenizers = {name: tokenizer for name, (tokenizer, _) in counted.items()}
    if stand_ins := [name for name, (_, is_stand_in) in counted.items() if is_stand_in]:
        outcome.remarks.append(f"Texts are cut into tokens by quire-mini's tokenizer for {' and '.join(stand_ins)}.")
    source, remark = choose_embedder(settings.embedder, may_hash=settings.documents == ())
    if remark is not None:
        outcome.remarks.append(remark)
    paths, questions = _inputs(settings, directory)
    with contextlib.closing(Corpus(_make(directory / "collection"), source, config.num_threads)) as corpus:
        corpus.fill(paths, list(tokenizers.values()), settings.context_tokens)
        bench = _Bench(config, settings, corpus, tokenizers, directory)
        plans = [bench.plan(policy, named, questions) for policy, named in roles.items()]
        configs = bench.engine_configs(plans)
        if WARM in settings.kv:
            outcome.warm_bytes = bench.warm(plans, configs)
        outcome.trials = bench.measure(plans, configs)
    return plans, configs, outcome


def _inputs(settings: RagSettings, directory: Path) -> tuple[list[Path], list[LabelledQuestion]]:
    if settings.documents and settings.questions is not None:
        return list(settings.documents), read_labelled(settings.questions)
    made = generate()
    place = _make(directory / "documents")
    for name, text in made.documents.items():
        (place / name).write_text(text)
    return [place], made.questions


def _make(directory: Path) -> Path:
    directory.mkdir()
    return directory


class _Bench:
    """One run of the experiment, with its collection."""

    def __init__(
        self,
        config: EngineConfig,
        settings: RagSettings,
        corpus: Corpus,
        tokenizers: Mapping[str, Tokenizer],
        directory: Path,
    ) -> None:
        self.config = config
        self.settings = settings
        self.corpus = corpus
        self.tokenizers = tokenizers
        self.directory = directory
        self.collection_id = corpus.collection.id
        self._embed = lambda texts: corpus.embedder.embed(texts).vectors
        self._routers: dict[str, Router] = {}

    def router(self, policy: str, roles: Mapping[str, str]) -> Router:
        """A router, fresh for policies with state."""
        if policy == ROUND_ROBIN or policy not in self._routers:
            config = RoutingConfig(policy, roles)
            if self.corpus.embedder.source.name == HASHING:  # the shipped classifiers know another one's vectors
                config = replace(
                    config, query_examples=_EXAMPLES / "query.yaml", domain_examples=_EXAMPLES / "domain.yaml"
                )
            self._routers[policy] = Router(config, list(self.tokenizers), self._embed)
        return self._routers[policy]

    def plan(self, policy: str, roles: Mapping[str, str], questions: Sequence[LabelledQuestion]) -> Plan:
        """Choose the questions, and the documents of each model."""
        settings = self.settings
        asked = choose(questions, policy, roles, settings.queries, settings.seed)
        found = self.corpus.find([each.question for each in asked], self.router(policy, roles))
        if settings.zipf is not None:
            drawn = draw_by_zipf([each.chunk_id for each in found], settings.zipf, settings.seed)
            asked = [asked[at] for at in drawn]
            found = self.corpus.find([each.question for each in asked], self.router(policy, roles))
        prompts: dict[str, list[Prompt]] = {name: [] for name in roles.values()}
        for each, question in zip(found, asked, strict=True):
            tokenizer = self.tokenizers[each.model]
            prompt = join_question(tokenizer, [each.passage], question.question)
            prompts[each.model].append(share(prompt, self.collection_id, PUBLIC_ONLY))
        return Plan(policy, roles, asked, prompts)

    def engine_configs(self, plans: Sequence[Plan]) -> dict[str, EngineConfig]:
        """Configs as in a server, without a KV directory, in float32 and with room for these prompts by default."""
        longest = 1 + max(len(p.token_ids) for plan in plans for prompts in plan.prompts.values() for p in prompts)
        configs = {}
        for name in self.tokenizers:
            configs[name] = replace(
                self.config,
                model=name,
                kv_dir=None,
                skip_tokenizer_init=True,
                use_tqdm=False,
                dtype=EXACT if self.config.dtype == "auto" else self.config.dtype,
                max_model_len=self.config.max_model_len or longest + self.settings.output_len,
                num_threads=self.config.num_threads or max(1, default_num_threads() // len(self.tokenizers)),
            )
        return configs

    def warm(self, plans: Sequence[Plan], configs: Mapping[str, EngineConfig]) -> int:
        """Save the documents' KV to disk; returns its bytes."""
        place = _make(self.directory / "warm")
        documents: dict[str, dict[tuple[int, ...], Prompt]] = {name: {} for name in configs}
        for plan in plans:
            for name, prompts in plan.prompts.items():
                documents[name] |= {tuple(p.token_ids[: p.documents[-1]]): p for p in prompts}
        num_bytes = num_done = 0
        with progress(sum(map(len, documents.values())), "warming") as show:

            def count(name: str) -> Callable[[], None]:
                def done() -> None:
                    nonlocal num_done
                    num_done += 1
                    show(num_done, name)

                return done

            for name, mine in documents.items():
                alone = replace(configs[name], kv_dir=str(place), num_threads=self.config.num_threads)
                num_bytes += warm(alone, list(mine.values()), count(name))
        return num_bytes

    def measure(self, plans: Sequence[Plan], configs: Mapping[str, EngineConfig]) -> list[Trial]:
        """Run every way over every load, in turns."""
        settings = self.settings
        ways = [*([BARE] if WARM in settings.kv else []), *settings.kv]
        num_loads = 1 + (settings.rate is not None)
        num_plays = settings.runs * len(plans) * num_loads * len(ways)
        trials: list[Trial] = []
        num_done = 0
        with progress(num_plays * max(len(plan.questions) for plan in plans), "asking") as show:
            for repetition in range(settings.runs):
                turn = ways[repetition % len(ways) :] + ways[: repetition % len(ways)]
                for plan in plans:
                    for load in self._loads(plan, trials):
                        for way in turn:
                            so_far, remark = num_done, f"{plan.policy}, {load.name}, {way}"
                            show(so_far, f"{remark}: starting")
                            played = self._play(
                                plan,
                                load,
                                way,
                                configs,
                                lambda count, so_far=so_far, remark=remark: show(so_far + count, remark),  # type: ignore[misc]
                            )
                            num_done += len(plan.questions)
                            trials.append(Trial(plan.policy, load.name, way, repetition, played))
        return trials

    def _loads(self, plan: Plan, trials: Sequence[Trial]) -> Iterator[Load]:
        questions = [each.question for each in plan.questions]
        interval_s = self.settings.interval_ms / 1e3
        yield Load(f"{self.settings.interval_ms:g} ms apart", questions, interval_s)
        rate = self.settings.rate
        if rate is None:
            return
        if rate == 0:  # found in the first repetition, and kept
            burst = next(each for each in trials if each.policy == plan.policy and each.way == OFF)
            rate = AUTO_RATE_SHARE * burst.played.queries_s
        yield Load(f"{rate:.3g} a second", questions, 1 / rate)

    def _play(
        self, plan: Plan, load: Load, way: str, configs: Mapping[str, EngineConfig], on_answer: Callable[[int], None]
    ) -> Played:
        router = self.router(plan.policy, plan.roles)
        joiner = Joiner(self.tokenizers, self.collection_id, has_documents=way != BARE)
        mine = {name: configs[name] for name in dict.fromkeys(plan.roles.values())}
        longest = max(len(p.token_ids) for prompts in plan.prompts.values() for p in prompts)
        with contextlib.ExitStack() as stack:
            warm_place = self.directory / "warm"
            kv_dir = str(warm_place) if way == WARM else None
            if way == COLD:
                kv_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="cold-", dir=self.directory))
            mine = {name: replace(each, kv_dir=kv_dir) for name, each in mine.items()}

            async def go() -> Played:
                async with running(mine, longest) as engines:
                    raw = await asyncio.to_thread(read_raw, warm_place, self.settings.seed) if way == WARM else None
                    played = await play(engines, load, self.corpus, router, joiner, self.settings.output_len, on_answer)
                if raw is not None:
                    played.read_bytes_s, played.resident = raw
                return played

            return asyncio.run(go())
