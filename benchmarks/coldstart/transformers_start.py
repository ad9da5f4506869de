"""Cold start of a script that loads the model with transformers and generates one token."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

#: Run with `python -c`: it imports nothing of Quire. Times are of the monotonic clock, which processes share.
_SCRIPT = """
import json, sys, time
times = [time.monotonic()]
import torch, transformers
times.append(time.monotonic())
directory, dtype, num_threads, prompt = json.loads(sys.argv[1])
if num_threads:
    torch.set_num_threads(num_threads)
model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
times.append(time.monotonic())
model.generate(torch.tensor([prompt]), max_new_tokens=1, min_new_tokens=1, do_sample=False)
times.append(time.monotonic())
print(json.dumps(times))
"""


@dataclass(frozen=True)
class PeerStart:
    """Seconds since process start."""

    ttft_s: float
    full_s: float  #: the model is loaded
    phases: dict[str, float]


def start_transformers(directory: str, prompt: Sequence[int], *, dtype: str, num_threads: int | None) -> PeerStart:
    """Run the script once. Raises RuntimeError if it fails."""
    arguments = json.dumps([directory, dtype, num_threads, list(prompt)])
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _SCRIPT, arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"transformers did not start: {done.stderr[-1000:]}")
    began, imported, loaded, ended = (at - started for at in json.loads(done.stdout.splitlines()[-1]))
    phases = {"imports": imported, "weights": loaded - imported, "first step": ended - loaded}
    assert began <= imported
    return PeerStart(ended, loaded, phases)
