"""Studies of the papers and of single mechanisms: one script per question, run as `python -m benchmarks.NAME`."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # some scripts use the tests' generators of models and schemas
