"""Certificate authorities and certificates for a local cluster, as files that the Kubernetes daemons read."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from isthmus.local import files
from isthmus.runtime import authority
from isthmus.runtime.authority import Signed

# A local cluster that is older than this is brought up anew; nothing here is meant to be rotated.
_LIFETIME = dt.timedelta(days=3650)
_CLOCK_SKEW = dt.timedelta(minutes=10)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as PEM files beside each other."""

    certificate: Path
    key: Path


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only root can read, from its first byte on."""
    files.write_whole(path, content, mode=0o600)


def make_signing_key(path: Path) -> Path:
    """Make the key with which the API server signs service account tokens (ES256)."""
    if not path.exists():
        # kube-apiserver derives the public half only from a key in the older notation.
        write_secret(path, authority.key_pem(authority.new_key(), serialization.PrivateFormat.TraditionalOpenSSL))
    return path


class Authority:
    """A certificate authority that lives in a directory: made on first use, read again after that.

    Several processes may use it at once (`up` and `status`): none sees a key with the certificate of another.
    A server that trusts several authorities for different things compares a signature with each of the same
    `common_name`, at every request: authorities of one cluster have names of their own.
    """

    def __init__(self, directory: Path, name: str, *, common_name: str = "") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.locked(directory):
            if not (self.certificate.exists() and self.key.exists()):
                made = authority.make_authority(common_name or f"isthmus-{name}", **_life())
                _write_pair(Pair(self.certificate, self.key), made)
        loaded = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.key} does not contain an elliptic curve key")
        self._signer = Signed(x509.load_pem_x509_certificate(self.certificate.read_bytes()), loaded)

    def issue(
        self, file_name: str, common_name: str, *, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> Pair:
        """Make a certificate for a client (`common_name` is the user) and, with `hosts`, for a server as well."""
        pair = Pair(self.directory / f"{file_name}.crt", self.directory / f"{file_name}.key")
        with files.locked(self.directory):
            if not (pair.certificate.exists() and pair.key.exists()):
                made = authority.issue(
                    self._signer, common_name, groups=groups, hosts=hosts, client=True, **_life()
                )
                _write_pair(pair, made)
        return pair


def _write_pair(pair: Pair, signed: Signed) -> None:
    """Write the key first: a certificate that is there has its key."""
    pair.certificate.unlink(missing_ok=True)
    write_secret(pair.key, authority.key_pem(signed.key))
    files.write_whole(pair.certificate, authority.pem(signed.certificate))


def _life() -> dict[str, dt.datetime]:
    now = dt.datetime.now(dt.UTC)
    return {"begins": now - _CLOCK_SKEW, "ends": now + _LIFETIME}
