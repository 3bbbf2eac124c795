"""A loopback address of one's own, so that real daemons can keep their usual ports and yet run side by side.

The claim is a bound UDP socket: the kernel gives it to one process at a time and takes it back when that process
ends, however it ends. No lock file can go stale.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_CLAIM_PORT = 47


@contextmanager
def loopback_address() -> Iterator[str]:
    """Claim an address in 127.64.0.0/10 that no other test bed on this machine uses."""
    dice = random.SystemRandom()
    while True:
        address = f"127.{dice.randrange(64, 128)}.{dice.randrange(256)}.{dice.randrange(1, 255)}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind((address, _CLAIM_PORT))
            except OSError:
                continue
            yield address
            return
