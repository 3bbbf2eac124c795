"""Certificate authorities and certificates for a local cluster, as files that the Kubernetes daemons read."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus.local import files

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
        key = ec.generate_private_key(ec.SECP256R1())
        write_secret(path, _pem(key, serialization.PrivateFormat.TraditionalOpenSSL))
    return path


class Authority:
    """A certificate authority that lives in a directory: made on first use, read again after that.

    Several processes may use it at once (`up` and `status`): none sees a key with the certificate of another.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.locked(directory):
            if not (self.certificate.exists() and self.key.exists()):
                self._make(f"isthmus-{name}")
        loaded = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.key} does not hold an elliptic curve key")
        self._key = loaded
        self._issuer = x509.load_pem_x509_certificate(self.certificate.read_bytes())

    def issue(
        self, file_name: str, common_name: str, *, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
    ) -> Pair:
        """Make a certificate for a client (`common_name` is the user) and, with `hosts`, for a server as well."""
        pair = Pair(self.directory / f"{file_name}.crt", self.directory / f"{file_name}.key")
        with files.locked(self.directory):
            if not (pair.certificate.exists() and pair.key.exists()):
                self._sign(pair, common_name, groups=groups, hosts=hosts)
        return pair

    def _make(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, key.public_key(), issuer=subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write_pair(Pair(self.certificate, self.key), certificate, key)

    def _sign(self, pair: Pair, common_name: str, *, groups: tuple[str, ...], hosts: tuple[str, ...]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = (
            _builder(subject, key.public_key(), issuer=self._issuer.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), critical=False
            )
        _write_pair(pair, builder.sign(self._key, hashes.SHA256()), key)


def _write_pair(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Write the key first: a certificate that is there has its key."""
    pair.certificate.unlink(missing_ok=True)
    write_secret(pair.key, _pem(key))
    files.write_whole(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, public_key: ec.EllipticCurvePublicKey, *, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(
    key: ec.EllipticCurvePrivateKey,
    notation: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, notation, serialization.NoEncryption())
