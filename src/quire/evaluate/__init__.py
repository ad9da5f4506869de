"""How well a model answers: reading questions as prompts, and the worth of the answers. No model is known here."""
