"""Answer quality: read question files, build prompts and score answers. Independent of any model."""
