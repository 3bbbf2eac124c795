"""The X.509 that we use, and no more: P-256 keys, authorities, and the certificates that they sign."""

from collections.abc import Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_MAX_COMMON_NAME = 64


class Signed(NamedTuple):
    """A certificate and the key that goes with it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def make_authority(name: str, *, begins: datetime, ends: datetime) -> Signed:
    """Make an authority that signs itself, and may sign servers and clients but no further authority."""
    key = new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key, begins=begins, ends=ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Signed(certificate, key)


def issue(
    signer: Signed,
    name: str,
    *,
    groups: Sequence[str] = (),
    hosts: Sequence[str] = (),
    client: bool = False,
    begins: datetime,
    ends: datetime,
) -> Signed:
    """Have an authority sign for a server, reached under `hosts`, or a client, the user `name` in `groups`."""
    key = new_key()
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        + [x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_COMMON_NAME])]
    )
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] * client + [ExtendedKeyUsageOID.SERVER_AUTH] * bool(hosts)
    builder = (
        _builder(subject, signer.certificate.subject, key, begins=begins, ends=ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives(hosts)), critical=False)
    return Signed(builder.sign(signer.key, hashes.SHA256()), key)


def alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    """Subject alternative names: addresses as addresses and names as names."""
    return [_alternative(name) for name in names]


def pem(certificate: x509.Certificate) -> bytes:
    """Write a certificate as files and Secrets hold it."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(
    key: ec.EllipticCurvePrivateKey,
    notation: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    """Write a key likewise, without a password."""
    return key.private_bytes(serialization.Encoding.PEM, notation, serialization.NoEncryption())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
