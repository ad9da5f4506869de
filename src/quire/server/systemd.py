"""What systemd wants to hear of a service of `Type=notify`: that it is ready, that it lives, that it ends.

The protocol of sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names. Without that variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket

logger = logging.getLogger("quire.server")


def notify(*states: str) -> None:
    """Tell systemd, with states such as READY=1. Where it cannot be told, that is logged and nothing else happens."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # an abstract socket's name begins with a zero byte
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.sendall("\n".join(states).encode())
    except OSError as error:
        logger.warning("systemd cannot be told %s: %s", " ".join(states), error)


async def keep_alive() -> None:
    """Tell systemd that the event loop runs, twice as often as WatchdogSec asks: once the loop hangs, systemd ends the
    process. Returns at once where no watchdog waits for this process."""
    try:
        period_s = int(os.environ["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(period_s)
