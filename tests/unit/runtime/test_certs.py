"""The life of certificates, day by day, without waiting for it."""

import ssl
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from cryptography import x509

from isthmus.runtime.certkeeper import show
from isthmus.runtime.certs import Lives, Material, expiry, renew

NAMES = ("webhook.isthmus.svc", "webhook.isthmus.svc.cluster.local", "127.0.0.1")
START = datetime(2026, 1, 1, tzinfo=UTC)
LIVES = Lives()


def authorities(material: Material) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(material.bundle)


def trusted(material: Material, bundle: bytes, *, at: datetime, name: str = NAMES[0]) -> bool:
    """Whether a client that trusts `bundle` would accept what servers show."""
    store = x509.verification.Store(x509.load_pem_x509_certificates(bundle))
    verifier = x509.verification.PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(material.chain), [])
    except x509.verification.VerificationError:
        return False
    return True


def test_the_first_material_is_accepted_by_clients_of_its_names_only() -> None:
    material = renew(None, NAMES, now=START)
    assert trusted(material, material.bundle, at=START)
    assert trusted(material, material.bundle, at=START - timedelta(minutes=50)), "clocks that are behind"
    assert not trusted(material, material.bundle, at=START, name="elsewhere.svc")
    assert not trusted(material, renew(None, NAMES, now=START).bundle, at=START)
    show(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), material)


def test_nothing_is_made_anew_without_need() -> None:
    material = renew(None, NAMES, now=START)
    assert renew(material, NAMES, now=START + LIVES.serving * 0.6) is material


def test_a_serving_certificate_is_renewed_before_it_ends_by_the_same_authority() -> None:
    material = renew(None, NAMES, now=START)
    later = START + LIVES.serving * 0.7
    renewed = renew(material, NAMES, now=later)
    assert renewed.bundle == material.bundle
    assert renewed.key != material.key
    assert expiry(renewed.chain) == later + LIVES.serving
    assert trusted(renewed, material.bundle, at=later)


def test_a_change_of_names_makes_a_new_certificate() -> None:
    material = renew(None, NAMES, now=START)
    renamed = renew(material, ("other.svc",), now=START)
    assert trusted(renamed, material.bundle, at=START, name="other.svc")


def test_four_years_pass_and_at_no_time_is_a_client_that_heard_the_news_a_day_late_in_trouble() -> None:
    now = START
    material = renew(None, NAMES, now=now)
    known = [material.bundle]  # what clients trust: the bundles of the last days, newest last
    seen = set()
    for _ in range(4 * 365):
        now += timedelta(days=1)
        material = renew(material, NAMES, now=now)
        known = [*known[-1:], material.bundle]
        assert trusted(material, known[0], at=now), now
        assert trusted(material, known[-1], at=now), now
        assert len(authorities(material)) <= 2
        assert material.authority_keys.count(b"BEGIN") <= 2
        seen |= {one.serial_number for one in authorities(material)}
    assert len(seen) == 6, "an authority lives for a year and is replaced when a third of it is left"


def test_a_new_authority_is_announced_before_it_signs_and_the_old_key_goes_when_it_does() -> None:
    first = renew(None, NAMES, now=START)
    announced_at = START + LIVES.authority * 0.7
    announced = renew(first, NAMES, now=announced_at)
    assert len(authorities(announced)) == 2
    assert announced.authority_keys.count(b"BEGIN") == 2
    assert trusted(announced, first.bundle, at=announced_at), "the old one signs"
    assert renew(announced, NAMES, now=announced_at + LIVES.settling / 2) is announced
    settled = renew(announced, NAMES, now=announced_at + LIVES.settling)
    assert not trusted(settled, first.bundle, at=announced_at + LIVES.settling), "the new one signs"
    assert trusted(settled, announced.bundle, at=announced_at + LIVES.settling)
    assert len(authorities(settled)) == 2
    assert settled.authority_keys.count(b"BEGIN") == 1


def test_after_a_long_sleep_everything_is_new() -> None:
    material = renew(None, NAMES, now=START)
    later = START + timedelta(days=800)
    woken = renew(material, NAMES, now=later)
    assert trusted(woken, woken.bundle, at=later)
    assert len(authorities(woken)) == 1


@pytest.mark.parametrize("field", ["bundle", "authority_keys", "chain", "key"])
@pytest.mark.parametrize(
    "rubbish", [b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_material_that_was_tampered_with_is_replaced(field: str, rubbish: bytes) -> None:
    material = renew(None, NAMES, now=START)
    broken = msgspec.structs.replace(material, **{field: rubbish})
    mended = renew(broken, NAMES, now=START)
    assert trusted(mended, mended.bundle, at=START)
    show(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), mended)


def test_keys_do_not_show_in_the_repr() -> None:
    assert "PRIVATE" not in repr(renew(None, NAMES, now=START))
