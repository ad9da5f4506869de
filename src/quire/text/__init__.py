"""Text on its way into tokens and out of them: tokenizer, incremental detokenizer, stop strings, chat template."""
