"""The CPS paper's experiment on the discipline of the engine that it used: `fit` and `map`."""
