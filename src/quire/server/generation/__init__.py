"""Generation for every API: running prompts, writing and sending answers, counting tokens."""
