"""Generation as every API shares it: running prompts, streaming answers, counting tokens."""
