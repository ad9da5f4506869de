"""`pip install` for `make`: on a terminal, one line with the seconds and the current package instead of pip's many."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

_WIDTH = 79


def main(arguments: list[str]) -> int:
    """Run pip with `arguments`, and return its exit status. Warnings and errors go to stderr as they are."""
    command = [sys.executable, "-m", "pip", "install", *arguments]
    if not sys.stdout.isatty():
        return subprocess.call([*command, "--quiet"])
    began, current, is_done = time.monotonic(), ["starting pip"], threading.Event()

    def show() -> None:
        while not is_done.wait(0.5):
            sys.stdout.write(f"\r\x1b[2K  {time.monotonic() - began:3.0f} s  {current[0]}"[:_WIDTH])
            sys.stdout.flush()
        sys.stdout.write("\r\x1b[2K")

    display = threading.Thread(target=show)
    display.start()
    try:
        with subprocess.Popen([*command, "--progress-bar", "off"], stdout=subprocess.PIPE, text=True) as pip:
            assert pip.stdout is not None
            for line in pip.stdout:
                current[0] = describe(line) or current[0]
            return pip.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        is_done.set()
        display.join()


def describe(line: str) -> str:
    """Return a short form of a line of pip's output; empty for an uninteresting one."""
    if packages := re.match(r"Installing collected packages: (.*)", line):
        return f"installing {len(packages[1].split(', '))} packages"
    if found := re.match(r"(Collecting|Downloading|Building|Preparing) (.*)", line.strip()):
        return f"{found[1].lower()} {found[2].rpartition('/')[2]}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
