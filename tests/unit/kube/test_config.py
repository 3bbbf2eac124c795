"""Kubeconfig in all the forms that people have."""

import json
import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from isthmus.errors import Terminal
from isthmus.kube import tls
from isthmus.kube.auth import Certificate, Exec, Fixed, TokenFile
from isthmus.kube.config import Config, from_files, in_cluster, load


def write(path: Path, *, user: Any = None, cluster: Any = None, **changes: Any) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "preferences": {},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content | changes))
    return path


async def authorization(config: Config) -> str:
    return (await config.credentials.headers()).get("Authorization", "")


def pem() -> tuple[bytes, bytes, bytes]:
    authority = trustme.CA()
    issued = authority.issue_cert("client")
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    return authority.cert_pem.bytes(), chain, issued.private_key_pem.bytes()


async def test_a_token_stands_in_the_file(tmp_path: Path) -> None:
    config = load(write(tmp_path / "config", user={"token": "abc"}))
    assert await authorization(config) == "Bearer abc"
    assert (config.server, config.namespace) == ("https://10.0.0.1:6443", "default")


async def test_a_token_file_is_relative_to_the_kubeconfig_and_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "sub" / "config", user={"tokenFile": "token", "token": "ignored"})
    (tmp_path / "sub" / "token").write_text("one\n")
    config = load(path)
    assert await authorization(config) == "Bearer one"
    (tmp_path / "sub" / "token").write_text("two\n")
    assert await authorization(config) == "Bearer one"
    assert await config.credentials.renew()
    assert await authorization(config) == "Bearer two"
    assert not await config.credentials.renew()


def aging(path: Path) -> tuple[TokenFile, list[float]]:
    """A token file, and the clock by which it ages."""
    now = [0.0]
    path.write_text("one")
    return TokenFile(path, clock=lambda: now[0]), now


async def test_a_token_file_is_read_again_by_age(tmp_path: Path) -> None:
    path = tmp_path / "token"
    credentials, now = aging(path)
    first = await credentials.headers()
    path.write_text("two")
    now[0] = 59
    assert await credentials.headers() is first
    now[0] = 60
    assert (await credentials.headers())["Authorization"] == "Bearer two"


async def test_a_token_file_that_vanishes_leaves_the_token_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "token"
    credentials, now = aging(path)
    first = await credentials.headers()
    path.unlink()
    now[0] = 60
    assert await credentials.headers() is first
    assert not await credentials.renew()


async def test_a_name_and_password(tmp_path: Path) -> None:
    config = load(write(tmp_path / "config", user={"username": "me", "password": "pass:word"}))
    assert await authorization(config) == "Basic " + b64encode(b"me:pass:word").decode()


@pytest.mark.parametrize("inline", [True, False])
async def test_client_certificates_inline_and_in_files(tmp_path: Path, *, inline: bool) -> None:
    ca, chain, key = pem()
    if inline:
        user = {
            "client-certificate-data": b64encode(chain).decode(),
            "client-key-data": b64encode(key).decode(),
        }
        cluster = {"certificate-authority-data": b64encode(ca).decode()}
    else:
        for name, content in {"ca.pem": ca, "tls.pem": chain, "key.pem": key}.items():
            (tmp_path / name).write_bytes(content)
        user = {"client-certificate": "tls.pem", "client-key": str(tmp_path / "key.pem")}
        cluster = {"certificate-authority": "ca.pem"}
    config = load(write(tmp_path / "config", user=user, cluster=cluster))
    certificate = config.credentials.certificate
    assert certificate is not None
    assert (certificate.chain, certificate.key) == (chain, key)
    tls.present(tls.trust(config.ca), certificate)


def test_data_in_the_file_wins_over_a_path(tmp_path: Path) -> None:
    ca, _, _ = pem()
    cluster = {"certificate-authority-data": b64encode(ca).decode(), "certificate-authority": "missing.pem"}
    assert load(write(tmp_path / "config", cluster=cluster)).ca == ca.decode()


def test_the_other_settings_of_a_cluster(tmp_path: Path) -> None:
    cluster = {
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy.example:3128",
        "server": "https://[fd00::1]:6443/base/",
    }
    config = load(write(tmp_path / "config", cluster=cluster))
    assert config.insecure
    assert config.tls_server_name == "kubernetes"
    assert config.proxy == "http://proxy.example:3128"
    assert config.server == "https://[fd00::1]:6443/base"


def test_the_environments_proxy_is_used_unless_it_excepts_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "config")
    for name in ("https_proxy", "NO_PROXY", "no_proxy"):  # names in small letters count more
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert load(path).proxy == "http://proxy.example:3128"
    monkeypatch.setenv("NO_PROXY", "localhost,10.0.0.1")
    assert load(path).proxy is None


def test_contexts_are_chosen_by_name(tmp_path: Path) -> None:
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u"}},
        {"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "far"}},
    ]
    path = write(tmp_path / "config", contexts=contexts)
    assert load(path, context="there").namespace == "far"
    with pytest.raises(Terminal, match="nowhere") as caught:
        load(path, context="nowhere")
    assert caught.value.remedy == "known: here, there"


async def test_several_files_merge_and_the_first_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "1" / "config", users=[], contexts=[])
    second = write(
        tmp_path / "2" / "config",
        user={"token": "of-two"},
        cluster={"server": "https://other:6443"},
        **{"current-context": "ignored"},
    )
    environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "missing"), str(first), "", str(second)])}
    config = load(environ=environ)
    assert config.server == "https://10.0.0.1:6443"
    assert await authorization(config) == "Bearer of-two"


def test_no_file_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="missing") as caught:
        from_files([tmp_path / "missing"])
    assert "KUBECONFIG" in caught.value.remedy
    with pytest.raises(Terminal):
        load(environ={"HOME": str(tmp_path)})


async def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    ca, _, _ = pem()
    for name, content in {"token": b"jwt\n", "ca.crt": ca, "namespace": b"slurm\n"}.items():
        (tmp_path / name).write_bytes(content)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    config = in_cluster(environ=environ, directory=tmp_path)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "slurm")
    assert await authorization(config) == "Bearer jwt"
    with pytest.raises(Terminal, match="not a pod"):
        in_cluster(environ={}, directory=tmp_path)


async def test_an_exec_plugin_gets_what_it_asks_for(tmp_path: Path) -> None:
    ca, chain, key = pem()
    status = {"token": "from-plugin", "clientCertificateData": chain.decode(), "clientKeyData": key.decode()}
    answer = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = tmp_path / "bin" / "plugin"
    plugin.parent.mkdir()
    plugin.write_text(
        f'#!/bin/sh\nprintf "%s" "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n'
        f'echo "$COLOUR $*" > {tmp_path}/called\ncat {tmp_path}/answer\n'
    )
    plugin.chmod(0o700)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "./bin/plugin",
            "args": ["get", "token"],
            "env": [{"name": "COLOUR", "value": "red"}],
            "provideClusterInfo": True,
            "interactiveMode": "IfAvailable",
        }
    }
    cluster = {"certificate-authority-data": b64encode(ca).decode(), "tls-server-name": "k"}
    config = load(write(tmp_path / "config", user=user, cluster=cluster))
    assert await authorization(config) == "Bearer from-plugin"
    assert (tmp_path / "called").read_text() == "red get token\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["cluster"]["server"] == "https://10.0.0.1:6443"
    assert info["spec"]["cluster"]["certificate-authority-data"] == b64encode(ca).decode()
    assert config.credentials.certificate == Certificate(chain, key)


async def test_an_exec_plugin_may_give_a_token_or_a_certificate_alone(tmp_path: Path) -> None:
    _, chain, key = pem()
    certificate = {"clientCertificateData": chain.decode(), "clientKeyData": key.decode()}
    for status, headers, given in (
        ({"token": "alone"}, {"Authorization": "Bearer alone"}, None),
        (certificate, {}, Certificate(chain, key)),
    ):
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (tmp_path / "answer").write_text(json.dumps(answer))
        plugin = Exec("cat", [str(tmp_path / "answer")])
        assert dict(await plugin.headers()) == headers
        assert plugin.certificate == given


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("exit 3", "ended with 3"),
        ("echo please log in >&2; exit 1", "please log in"),
        ("echo no-json-but-secret", "did not print an ExecCredential"),
        ('echo \'{"apiVersion": "other/v1", "status": {"token": "secret"}}\'', "returned 'other/v1'"),
        ('echo \'{"apiVersion": "client.authentication.k8s.io/v1", "status": {}}\'', "neither a token"),
    ],
)
async def test_an_exec_plugin_that_fails_says_why_and_shows_no_secret(
    tmp_path: Path, script: str, complaint: str
) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o700)
    with pytest.raises(Exception, match=complaint) as caught:
        await Exec(str(plugin)).headers()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"current-context": ""}, "no current context"),
        ({"clusters": []}, "no cluster 'c'"),
        ({"users": []}, "no user 'u'"),
        ({"clusters": "c"}, r"\$\.clusters"),
        ({"cluster": {"server": "10.0.0.1:6443"}}, "not a valid URL"),
        ({"cluster": {"server": "https://me:pw@host"}}, "not a valid URL"),
        ({"cluster": {"server": "https://host:port"}}, "not a valid URL"),
        ({"cluster": {"certificate-authority": "missing.pem"}}, "cannot be read"),
        ({"cluster": {"certificate-authority-data": "%%%"}}, "not base64"),
        ({"cluster": {"proxy-url": "socks5://host"}}, "socks5"),
        ({"user": {"client-certificate-data": "YQ=="}}, "without its key"),
        ({"user": {"token": "a b"}}, "token"),
        ({"user": {"token": "line\nbreak"}}, "token"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider"),
        ({"user": {"exec": {}}}, "command"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Terminal, match=complaint):
        load(write(tmp_path / "config", **changes))


def test_a_file_that_is_no_yaml_shows_no_line_of_it(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users:\n- user: {token: secret-token\n  bad: [")
    with pytest.raises(Terminal, match="not YAML, line") as caught:
        load(path)
    assert "secret" not in str(caught.value)


def test_certificates_that_do_not_fit_are_refused() -> None:
    ca, chain, _ = pem()
    _, _, other_key = pem()
    with pytest.raises(Terminal, match="do not match"):
        tls.present(tls.trust(ca.decode()), Certificate(chain, other_key))
    with pytest.raises(Terminal, match="authority"):
        tls.trust("no certificate")


def test_no_secret_in_any_repr(tmp_path: Path) -> None:
    secrets = {"token": "s3cret"}, {"username": "u", "password": "s3cret"}
    for user in secrets:
        assert "s3cret" not in repr(load(write(tmp_path / "config", user=user)))
    assert "s3cret" not in repr(Certificate(b"s3cret", b"s3cret"))
    assert "s3cret" not in repr(Fixed.token("s3cret"))
