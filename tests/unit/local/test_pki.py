import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from isthmus.kube import config
from isthmus.local import kubeconfig
from isthmus.local.pki import Authority, Pair, make_signing_key

SERVER = ("198.18.0.2", "kubernetes.default.svc")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", "ca")


def certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def fits(pair: Pair) -> bool:
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    return key.public_key() == certificate(pair).public_key()


def handshake(authority: Authority, *, server: Pair, client: Pair, name: str = SERVER[0]) -> None:
    """Let a server and a client meet over TLS, each of which trusts this authority alone and shows a pair."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(server.certificate, server.key)
    asking = ssl.create_default_context(cafile=str(authority.certificate))
    asking.load_cert_chain(client.certificate, client.key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        asking.wrap_bio(down, up, server_hostname=name),
        serving.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(4):  # more than enough messages both ways
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[1].getpeercert()


@pytest.fixture
def server(authority: Authority) -> Pair:
    return authority.issue("server", "kube-apiserver", hosts=SERVER)


def test_a_client_is_a_user_with_groups_and_no_server(authority: Authority, server: Pair) -> None:
    pair = authority.issue("admin", "kubernetes-admin", groups=("system:masters", "second"))
    handshake(authority, server=server, client=pair)
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(authority, server=pair, client=pair)
    subject = certificate(pair).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["kubernetes-admin"]
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [name.value for name in groups] == ["system:masters", "second"]


def test_a_server_is_known_by_its_names_and_addresses_alone(authority: Authority, server: Pair) -> None:
    for name in SERVER:
        handshake(authority, server=server, client=server, name=name)
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(authority, server=server, client=server, name="198.18.0.3")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority, server=server, client=server, name="kubernetes.example")


def test_a_certificate_of_another_authority_is_not_trusted(
    authority: Authority, server: Pair, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "pki" / "etcd", "ca")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        handshake(authority, server=server, client=other.issue("client", "somebody"))


def test_keys_are_roots_alone(authority: Authority, tmp_path: Path) -> None:
    authority.issue("admin", "kubernetes-admin")
    make_signing_key(authority.directory / "tokens.key")
    keys = sorted((tmp_path / "pki").glob("*.key"))
    assert [key.name for key in keys] == ["admin.key", "ca.key", "tokens.key"]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE(authority.directory.stat().st_mode) == 0o700


def test_what_was_made_once_is_used_again(authority: Authority) -> None:
    pair = authority.issue("admin", "kubernetes-admin")
    signing = make_signing_key(authority.directory / "tokens.key")
    before = {file: file.read_bytes() for file in authority.directory.iterdir()}
    again = Authority(authority.directory, "ca")
    assert again.issue("admin", "kubernetes-admin") == pair
    assert make_signing_key(signing) == signing
    assert {file: file.read_bytes() for file in authority.directory.iterdir()} == before


@pytest.mark.parametrize("lost", ["ca.key", "ca.crt", "admin.key", "admin.crt"])
def test_half_of_a_pair_is_made_anew_as_a_whole(authority: Authority, lost: str) -> None:
    authority.issue("admin", "kubernetes-admin")
    (authority.directory / lost).unlink()
    again = Authority(authority.directory, "ca")
    assert fits(Pair(again.certificate, again.key))
    assert fits(again.issue("admin", "kubernetes-admin"))


def test_processes_that_make_the_same_certificate_at_once_agree(tmp_path: Path) -> None:
    def make(_: int) -> Pair:
        return Authority(tmp_path / "pki", "ca").issue("admin", "kubernetes-admin")

    with ThreadPoolExecutor(max_workers=8) as pool:
        (pair,) = set(pool.map(make, range(8)))
    assert fits(pair)
    authority = Authority(tmp_path / "pki", "ca")
    handshake(authority, server=authority.issue("server", "server", hosts=SERVER), client=pair)


def test_the_key_for_tokens_is_in_the_notation_that_the_api_server_reads(tmp_path: Path) -> None:
    assert make_signing_key(tmp_path / "tokens.key").read_text().startswith("-----BEGIN EC PRIVATE KEY-----")


def test_a_kubeconfig_holds_everything_and_is_secret(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("admin", "kubernetes-admin")
    path = kubeconfig.write(
        tmp_path / "admin.kubeconfig",
        name="demo",
        server="https://198.18.0.2:6443",
        authority=authority.certificate,
        user=pair,
    )
    expected = (authority.certificate.read_text(), pair.certificate.read_bytes(), pair.key.read_bytes())
    for file in authority.directory.iterdir():
        file.unlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = config.from_files([path])
    assert loaded.server == "https://198.18.0.2:6443"
    shown = loaded.credentials.certificate
    assert shown
    assert (loaded.ca, shown.chain, shown.key) == expected
