"""Titles above the options in `--help`."""

from __future__ import annotations

#: Title -> options in that panel; the others are in the panel "Options".
PANELS = {
    "Model": "model revision download_dir hf_token dtype quantization weights device load_format generation_config "
    "lora last_stage load_overlap storage_bandwidth use_tqdm seed skip_tokenizer_init escape_special_tokens",
    "Address": "host port uds root_path cors_origin allowed_host ssl_certfile ssl_keyfile ssl_keyfile_password "
    "ssl_ca_certs url",
    "Names": "served_model_name accept_any_model_name routing",
    "Keys": "api_key api_key_file admin_key admin_key_file",
    "Memory for KV": "kv_cache_memory num_kv_blocks gpu_memory_utilization kv_cache_dtype block_size "
    "enable_prefix_caching pin_prefix watermark check_memory kv_audit_rate",
    "Scheduling": "max_model_len max_num_seqs max_num_batched_tokens target_itl recovery_policy promotion_policy",
    "Processors": "tensor_parallel_size num_threads",
    "Swap": "swap_space swap_dir swap_bandwidth",
    "KV on disk": "keep_kv kv_dir kv_dir_size kv_dir_keep_prompts kv_dir_key kv_dir_coding",
    "Answers": "chat_template tool_call_parser reasoning_parser enable_force_include_usage "
    "return_tokens_as_token_ids ignore_unknown_fields trust_request_chat_template",
    "Sampling": "max_tokens temperature top_p top_k min_p repetition_penalty stop ignore_eos",
    "Limits": "max_queue max_concurrent_per_key priority_scope max_body_bytes max_answers max_logprobs "
    "max_stored_responses max_stored_requests",
    "Documents": "rag_dir embedder pooling max_collections_per_key max_documents_per_key max_collection_bytes_per_key",
    "Batches": "batch_dir max_batch_bytes_per_key",
    "Processes": "engine_process load_wait idle_unload memory_limit hang_timeout keep_alive shutdown_timeout",
    "Logs and metrics": "log_level log_format log_interval open_metrics otlp_traces_endpoint",
    "Ray": "ray ray_address min_replicas max_replicas target_requests target_replica_ttft_ms scale_down_after "
    "replica_routing replica_cpus replica_gpus replica_machines",
}
PANEL_BY_OPTION = {name: panel for panel, names in PANELS.items() for name in names.split()}
