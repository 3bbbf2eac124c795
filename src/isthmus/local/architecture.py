"""Processor architectures that programs and images are made for, and what they are called by whom."""

import platform

from msgspec import Struct

from isthmus.errors import Terminal


class Architecture(Struct, frozen=True):
    """An architecture; two of them mean different bytes of everything that is compiled."""

    name: str
    """As Debian, Go and OCI call it."""
    machine: str
    """As the kernel and Python's wheels call it."""
    elf: str
    """Its number in the header of every program, as binfmt_misc shows it: bytes in hexadecimal."""

    @property
    def multiarch(self) -> str:
        """The directory of Debian's libraries below /usr/lib."""
        return f"{self.machine}-linux-gnu"

    def marked(self, key: str) -> str:
        """Tell a thing in the cache from its like for another architecture.

        amd64 has no mark: what was built before there was a choice stays valid.
        """
        return key if self == AMD64 else f"{key}-{self.name}"


AMD64 = Architecture("amd64", "x86_64", elf="3e00")
ARM64 = Architecture("arm64", "aarch64", elf="b700")
ARCHITECTURES = {each.name: each for each in (AMD64, ARM64)}


def native() -> Architecture:
    machine = platform.machine()
    for each in ARCHITECTURES.values():
        if each.machine == machine:
            return each
    raise Terminal(f"Isthmus does not support {machine} machines", remedy=f"use {' or '.join(ARCHITECTURES)}")
