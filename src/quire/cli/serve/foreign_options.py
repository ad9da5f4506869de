"""Options of other engines, foremost vLLM, that start scripts give to `quire serve`."""

ANY = "any"
_EAGER = "models always run eagerly"
_GRAMMARS = "llguidance checks every schema and grammar"
_LOG = "the log has one line per request, without its content"
_RANKS = "--tensor-parallel-size sets the ranks on one machine, --ray serves several machines"
_REPLICAS = "--ray serves several replicas of a model"
_TEXT_ONLY = "models read text only"
_TOKEN_BUDGET = "oldest requests first, by --max-num-batched-tokens"

#: Options without a meaning here -> (accepted value: "" for none, `ANY`, or the only one; what happens instead).
IGNORED = {
    "--api-server-count": (ANY, "one server process answers all requests"),
    "--async-scheduling": ("", "each step is scheduled when the previous one has finished"),
    "--attention-backend": (ANY, "the device selects the attention kernel"),
    "--chat-template-content-format": ("auto", "lists of text parts are joined"),
    "--compilation-config": (ANY, "models are not compiled"),
    "--cpu-offload-gb": ("0", "all weights stay on the device"),
    "--data-parallel-size": ("1", _REPLICAS),
    "--disable-cascade-attn": ("", "there is no cascade attention"),
    "--disable-custom-all-reduce": ("", _RANKS),
    "--disable-frontend-multiprocessing": ("", "--no-engine-process runs everything in one process"),
    "--disable-log-requests": ("", _LOG),
    "--disable-log-stats": ("", "--log-interval sets the seconds between log lines of load"),
    "--disable-uvicorn-access-log": ("", _LOG),
    "--distributed-executor-backend": (ANY, _RANKS),
    "--enable-auto-tool-choice": ("", "tools need no switch; --tool-call-parser selects the format of calls"),
    "--enable-chunked-prefill": ("", "prompts are always computed in chunks of --max-num-batched-tokens"),
    "--enable-expert-parallel": ("", "models have no experts"),
    "--enable-log-requests": ("", _LOG),
    "--enable-prompt-tokens-details": ("", "usage always has prompt_tokens_details"),
    "--enable-reasoning": ("", "--reasoning-parser selects the format of reasoning"),
    "--enable-request-id-headers": ("", "every answer has an X-Request-Id, the request's own or a new one"),
    "--enable-server-load-tracking": ("", "GET /load always answers"),
    "--enable-sleep-mode": ("", "--idle-unload unloads an idle model"),
    "--enforce-eager": ("", _EAGER),
    "--gpu-memory-utilization": (ANY, "--kv-cache-memory sizes the KV pool; by default a share of free memory"),
    "--guided-decoding-backend": (ANY, _GRAMMARS),
    "--kv-cache-dtype": ("auto", "the KV cache has the model's dtype"),
    "--limit-mm-per-prompt": (ANY, _TEXT_ONLY),
    "--long-prefill-token-threshold": (ANY, _TOKEN_BUDGET),
    "--max-log-len": (ANY, _LOG),
    "--max-long-partial-prefills": (ANY, _TOKEN_BUDGET),
    "--max-num-partial-prefills": (ANY, _TOKEN_BUDGET),
    "--max-seq-len-to-capture": (ANY, _EAGER),
    "--mm-processor-kwargs": (ANY, _TEXT_ONLY),
    "--model-impl": (ANY, "Quire has its own models"),
    "--num-scheduler-steps": (ANY, "each step is scheduled when the previous one has finished"),
    "--pipeline-parallel-size": ("1", "--tensor-parallel-size splits a model over several devices"),
    "--response-role": ("assistant", "answers have the role assistant"),
    "--runner": ("generate", "--embedder serves embeddings"),
    "--scheduling-policy": (ANY, "requests are ordered by priority, then by arrival"),
    "--speculative-config": (ANY, "tokens are generated without drafts, and outputs are the same"),
    "--stream-interval": (ANY, "every token is sent at once"),
    "--structured-outputs-config": (ANY, _GRAMMARS),
    "--task": ("generate", "--embedder serves embeddings"),
    "--tokenizer-mode": (ANY, "tokenizer.json is read"),
    "--trust-remote-code": ("", "code of a checkpoint is never run"),
    "--use-v2-block-manager": ("", "there is one block manager"),
    "--uvicorn-log-level": (ANY, _LOG),
}

#: Other names of options: vLLM's, then SGLang's and llama.cpp's.
RENAMED = {
    "-dp": "--data-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-tp": "--tensor-parallel-size",
    "--allowed-origins": "--cors-origin",
    "--kv-cache-memory-bytes": "--kv-cache-memory",
    "--num-gpu-blocks-override": "--num-kv-blocks",
    "--preemption-mode": "--recovery-policy",
    "-c": "--max-model-len",
    "-hf": "--model",
    "-m": "--model",
    "-np": "--max-num-seqs",
    "-t": "--num-threads",
    "--chunked-prefill-size": "--max-num-batched-tokens",
    "--context-length": "--max-model-len",
    "--ctx-size": "--max-model-len",
    "--disable-radix-cache": "--no-enable-prefix-caching",
    "--max-running-requests": "--max-num-seqs",
    "--mem-fraction-static": "--gpu-memory-utilization",
    "--model-path": "--model",
    "--random-seed": "--seed",
    "--threads": "--num-threads",
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
}

#: Other names of values; None is the default.
VALUES: dict[str, dict[str, str | None]] = {
    "--dtype": {"half": "float16", "float": "float32"},
    "--load-format": {"dummy": "random"},
    "--max-model-len": {"auto": None, "-1": None},
}

#: Options that cannot be honoured -> what to use instead.
REFUSED = {
    "--default-chat-template-kwargs": "set chat_template_kwargs in each request",
    "--enable-lora": "merge the adapter into the weights, and serve the merged checkpoint",
    "--headless": "--ray serves several machines",
    "--hf-overrides": "change config.json in the model's directory",
    "--kv-transfer-config": "--kv-dir shares KV blocks between processes",
    "--logits-processors": "use logit_bias or structured output in each request",
    "--lora-modules": "merge the adapter into the weights, and serve the merged checkpoint",
    "--middleware": "put a proxy in front of the server",
    "--nnodes": "--ray serves several machines",
    "--override-generation-config": "set sampling fields in each request, or change generation_config.json",
    "--return-tokens-as-token-ids": "set return_tokens_as_token_ids in each request",
    "--rope-scaling": "change config.json in the model's directory",
    "--tokenizer": "the model's own tokenizer is used; put another tokenizer.json into the model's directory",
    "--tool-parser-plugin": "--tool-call-parser lists the known formats",
}
