"""A loopback address of one's own, so that real daemons can keep their usual ports and yet run side by side.

Who cannot choose the address gets a port of 127.0.0.1. The claim is a bound UDP socket: the kernel gives it to one
process at a time and takes it back when that process ends, however it ends. No lock file can go stale.
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


@contextmanager
def quiet_port() -> Iterator[int]:
    """Claim a port of 127.0.0.1 on which nobody listens, and which nobody gets by chance.

    The kernel hands out higher ones only; the bound UDP socket keeps other tests away, also those of other runs.
    """
    dice = random.SystemRandom()
    while True:
        number = dice.randrange(1 << 14, 30_000)  # node ports begin there
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim, socket.socket() as probe:
            try:
                claim.bind(("127.0.0.1", number))
                probe.bind(("", number))
            except OSError:
                continue
            probe.close()
            yield number
            return
