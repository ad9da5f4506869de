"""Options of other engines, foremost vLLM, that start scripts give to `quire serve`."""

ANY = "any"
_LOG = "the log has one line per request, without its content"
_RANKS = "--tensor-parallel-size sets the ranks on one machine, --ray serves several machines"
_TOKEN_BUDGET = "oldest requests first, by --max-num-batched-tokens"

_IGNORED = {
    "--api-server-count": (ANY, "one process accepts connections; a proxy spreads them over several servers"),
    "--async-scheduling": ("", "each step is scheduled when the previous one has finished"),
    "--attention-backend": (ANY, "the device selects the attention kernel"),
    "--chat-template-content-format": ("auto", "lists of text parts are joined"),
    "--compilation-config": (ANY, "models are not compiled"),
    "--cont-batching -cb": ("", "requests are always batched"),
    "--cpu-offload-gb": ("0", "all weights stay on the device"),
    "--data-parallel-size": ("1", "--ray serves several replicas of a model"),
    "--disable-custom-all-reduce": ("", _RANKS),
    "--disable-frontend-multiprocessing": ("", "--no-engine-process runs everything in one process"),
    "--disable-log-requests --disable-uvicorn-access-log --enable-log-requests": ("", _LOG),
    "--disable-log-stats": ("", "--log-interval sets the seconds between log lines of load"),
    "--distributed-executor-backend": (ANY, _RANKS),
    "--enable-auto-tool-choice": ("", "tools need no switch; --tool-call-parser selects the format of calls"),
    "--enable-chunked-prefill": ("", "prompts are always computed in chunks of --max-num-batched-tokens"),
    "--enable-lora": ("", "--lora NAME=DIR serves an adapter"),
    "--enable-prompt-tokens-details": ("", "usage always has prompt_tokens_details"),
    "--enable-reasoning": ("", "--reasoning-parser selects the format of reasoning"),
    "--enable-request-id-headers": ("", "every answer has an X-Request-Id, the request's own or a new one"),
    "--enable-server-load-tracking": ("", "GET /load always answers"),
    "--enable-sleep-mode": ("", "--idle-unload unloads an idle model"),
    "--enable-tokenizer-info-endpoint": ("", "GET /tokenizer_info always answers"),
    "--flash-attn -fa": (ANY, "the device selects the attention kernel"),
    "--guided-decoding-backend --structured-outputs-config": (ANY, "llguidance checks every schema and grammar"),
    "--jinja": ("", "chat templates are always Jinja"),
    "--limit-mm-per-prompt": (ANY, "models read text only"),
    "--long-prefill-token-threshold --max-long-partial-prefills --max-num-partial-prefills": (ANY, _TOKEN_BUDGET),
    "--lora-dtype --max-cpu-loras --max-lora-rank --max-loras": (ANY, "adapters of any rank share a batch, in float32"),
    "--max-log-len --uvicorn-log-level": (ANY, _LOG),
    "--max-seq-len-to-capture": (ANY, "decodes of up to 256 tokens are recorded"),
    "--metrics": ("", "GET /metrics always answers"),
    "--mlock --mmap": ("", "weights are read into memory"),
    "--model-impl": (ANY, "Quire has its own models"),
    "--n-gpu-layers --gpu-layers -ngl": (ANY, "--device selects cpu or cuda for all layers"),
    "--num-scheduler-steps": (ANY, "each step is scheduled when the previous one has finished"),
    "--pipeline-parallel-size": ("1", "--tensor-parallel-size splits a model over several devices"),
    "--response-role": ("assistant", "answers have the role assistant"),
    "--runner --task": (ANY, "every model generates, scores and embeds; --pooling selects its embeddings"),
    "--scheduling-policy": (ANY, "requests are ordered by priority, then by arrival"),
    "--speculative-config": (ANY, "--speculative-model NAME or mtp, --speculative-tokens N; outputs are the same"),
    "--stream-interval": (ANY, "every token is sent at once"),
    "--tokenizer-mode": (ANY, "tokenizer.json is read"),
    "--trust-remote-code": ("", "code of a checkpoint is never run"),
    "--ubatch-size -ub": (ANY, "--max-num-batched-tokens limits a step"),
}
#: Options without a meaning here -> (accepted value: "" for none, `ANY`, or the only one; what happens instead).
IGNORED = {name: rule for names, rule in _IGNORED.items() for name in names.split()}

_NAMES = {
    "--chat-template": "--chat-template-file",
    "--cors-origin": "--allowed-origins",
    "--data-parallel-size": "-dp --dp-size",
    "--enforce-eager": "--disable-cuda-graph",
    "--gpu-memory-utilization": "--mem-fraction-static",
    "--kv-cache-dtype": "-ctk -ctv --cache-type-k --cache-type-v",
    "--kv-cache-memory": "--kv-cache-memory-bytes",
    "--max-model-len": "-c --context-length --ctx-size",
    "--max-num-batched-tokens": "-b --batch-size --chunked-prefill-size",
    "--max-num-seqs": "-np --parallel --max-running-requests",
    "--model": "-hf --hf-repo -m --model-path",
    "--no-enable-prefix-caching": "--disable-radix-cache",
    "--num-kv-blocks": "--num-gpu-blocks-override",
    "--num-threads": "-t --threads",
    "--pipeline-parallel-size": "-pp",
    "--quantization": "-q",
    "--recovery-policy": "--preemption-mode",
    "--served-model-name": "-a --alias",
    "--tensor-parallel-size": "-tp --tp --tp-size",
}
#: Other names of options: vLLM's, SGLang's and llama.cpp's.
RENAMED = {other: name for name, others in _NAMES.items() for other in others.split()}

#: Other names of values; None is the default.
VALUES: dict[str, dict[str, str | None]] = {
    "--dtype": {"half": "float16", "float": "float32"},
    "--kv-cache-dtype": {"bf16": None, "f16": None, "q8_0": "int8"},
    "--load-format": {"dummy": "random"},
    "--max-model-len": {"auto": None, "-1": None},
}

#: Options that cannot be honoured -> what to use instead.
REFUSED = {
    "--default-chat-template-kwargs": "set chat_template_kwargs in each request",
    "--headless": "--ray serves several machines",
    "--hf-overrides": "change config.json in the model's directory",
    "--kv-transfer-config": "--kv-dir shares KV blocks between processes",
    "--logits-processors": "use logit_bias or structured output in each request",
    "--lora-modules": "--lora NAME=DIR, once for each adapter",
    "--middleware": "put a proxy in front of the server",
    "--nnodes": "--ray serves several machines",
    "--override-generation-config": "set sampling fields in each request, or change generation_config.json",
    "--rope-scaling": "change config.json in the model's directory",
    "--tokenizer": "the model's own tokenizer is used; put another tokenizer.json into the model's directory",
    "--tool-parser-plugin": "--tool-call-parser lists the known formats",
    "--tool-server": "run tools at the client",
}
