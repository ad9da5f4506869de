"""Text processing: tokenizer, incremental detokenizer, stop strings, chat templates."""
