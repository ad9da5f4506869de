"""Why prompts were read again: what each key sent recently, and where a prompt diverged from it."""
