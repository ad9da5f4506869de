"""Notifications for a systemd service of `Type=notify`: ready, alive, stopping.

The protocol is sd_notify(3): datagrams to the socket in NOTIFY_SOCKET. Without the variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket

logger = logging.getLogger("quire.server")


def notify(*states: str) -> None:
    """Send states such as READY=1. A failure is logged only."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # an abstract socket's name begins with a zero byte
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.sendall("\n".join(states).encode())
    except OSError as error:
        logger.warning("systemd cannot be notified of %s: %s", " ".join(states), error)


async def keep_alive() -> None:
    """Notify the watchdog twice per WatchdogSec while the event loop runs; once the loop hangs, systemd ends the
    process. Returns at once without a watchdog."""
    try:
        period_s = int(os.environ["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(period_s)
