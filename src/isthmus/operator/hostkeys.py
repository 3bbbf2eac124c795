"""Creates the SSH host keys of login nodes."""

from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

_RSA_BITS: Final = 3072


def generate(names: Iterable[str], *, comment: str) -> dict[str, str]:
    """Make a private and a public key for each name such as ssh_host_rsa_key. Takes up to a second of a core."""
    made: dict[str, str] = {}
    for name in names:
        key = _key(name)
        made[name] = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        made[f"{name}.pub"] = f"{public} {comment}\n"
    return made


def _key(name: str) -> "ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey":
    match name.split("_"):
        case [*_, "ed25519", "key"]:
            return ed25519.Ed25519PrivateKey.generate()
        case [*_, "ecdsa", "key"]:
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
