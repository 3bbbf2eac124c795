"""Certificates of our own: an authority, what it signs for our servers, and when each is recreated.

Everything is decided by what is there and what time it is, so any replica may decide, at any moment, and comes to
the same result. A new authority goes through three stages:

    made       when the one in use has a third of its life left; from now on clients are told to trust both
    settled    after `Lives.settling`, in which every client learned of it: it signs, the key of the old one is gone
    old        it signed long ago and another has settled; still trusted until it ends

So at any time all servers show a certificate that all clients trust, also while some have not heard the news.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from isthmus.errors import Terminal
from isthmus.runtime import authority

# A certificate holds from an hour before it was made, for clients whose clocks are behind.
_SKEW = timedelta(hours=1)
_RENEW_BELOW = 1 / 3


class Lives(msgspec.Struct, frozen=True):
    authority: timedelta = timedelta(days=365)
    serving: timedelta = timedelta(days=90)
    settling: timedelta = timedelta(days=1)


class Material(msgspec.Struct, frozen=True):
    """What replicas share, in PEM: authorities to trust, keys that may sign, and what servers show."""

    bundle: bytes
    authority_keys: bytes
    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Material({len(self.bundle)} bytes of authorities)"


class _Authority(msgspec.Struct, frozen=True):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    @property
    def made(self) -> datetime:
        return self.certificate.not_valid_before_utc + _SKEW

    @property
    def ends(self) -> datetime:
        return self.certificate.not_valid_after_utc


def renew(material: Material | None, names: Sequence[str], *, now: datetime, lives: Lives = Lives()) -> Material:  # noqa: B008 - frozen
    """Return material with which servers can be reached under `names`: the given, if it is good for a while yet."""
    authorities = [found for found in _authorities(material) if found.ends > now]
    signers = [found for found in authorities if found.key]
    if not signers or signers[0].ends - now < lives.authority * _RENEW_BELOW:
        fresh = _make_authority(now, lives)
        authorities.insert(0, fresh)
        signers.insert(0, fresh)
    settled = next((found for found in signers if found.made + lives.settling <= now), None)
    signer = settled or signers[-1]
    # Keys older than the one that signs are of no more use, and what is gone cannot be stolen.
    signers = signers[: signers.index(signer) + 1]

    bundle = b"".join(authority.pem(found.certificate) for found in authorities)
    keys = b"".join(authority.key_pem(found.key) for found in signers if found.key)
    if material and _still_good(material, names, signer, now=now, lives=lives):
        if (material.bundle, material.authority_keys) == (bundle, keys):
            return material
        return msgspec.structs.replace(material, bundle=bundle, authority_keys=keys)
    chain, key = _make_serving(signer, names, now=now, lives=lives)
    return Material(bundle=bundle, authority_keys=keys, chain=chain, key=key)


def expiry(chain: bytes) -> datetime:
    """Return when a serving certificate ends."""
    return x509.load_pem_x509_certificate(chain).not_valid_after_utc


def _authorities(material: Material | None) -> Iterator[_Authority]:
    """Read the authorities, newest first. What cannot be read counts as absent, and is recreated."""
    if material is None:
        return
    try:
        certificates = x509.load_pem_x509_certificates(material.bundle)
        keys = {key.public_key().public_numbers(): key for key in _split_keys(material.authority_keys)}
    except ValueError:
        return
    for certificate in sorted(certificates, key=lambda one: one.not_valid_before_utc, reverse=True):
        public = certificate.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey):
            yield _Authority(certificate, keys.get(public.public_numbers()))


def _still_good(
    material: Material, names: Sequence[str], signer: _Authority, *, now: datetime, lives: Lives
) -> bool:
    """Whether servers can keep their certificate."""
    try:
        shown = x509.load_pem_x509_certificate(material.chain)
        key = serialization.load_pem_private_key(material.key, password=None)
        alternatives = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown.verify_directly_issued_by(signer.certificate)
    except (ValueError, TypeError, x509.ExtensionNotFound, InvalidSignature):
        return False
    return (
        key.public_key() == shown.public_key()
        and list(alternatives) == authority.alternatives(names)
        and shown.not_valid_after_utc - now >= lives.serving * _RENEW_BELOW
    )


def _make_authority(now: datetime, lives: Lives) -> _Authority:
    made = authority.make_authority(
        f"isthmus {now:%Y-%m-%d %H:%M:%S}", begins=now - _SKEW, ends=now + lives.authority
    )
    return _Authority(made.certificate, made.key)


def _make_serving(signer: _Authority, names: Sequence[str], *, now: datetime, lives: Lives) -> tuple[bytes, bytes]:
    if signer.key is None:
        raise Terminal("the certificate authority has no key to sign with")
    by = authority.Signed(signer.certificate, signer.key)
    ends = min(now + lives.serving, signer.ends)
    made = authority.issue(by, names[0], hosts=names, begins=now - _SKEW, ends=ends)
    return authority.pem(made.certificate), authority.key_pem(made.key)


def _split_keys(text: bytes) -> Iterator[ec.EllipticCurvePrivateKey]:
    end = b"-----END PRIVATE KEY-----\n"
    for part in text.split(end)[:-1]:
        key = serialization.load_pem_private_key(part + end, password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            yield key
