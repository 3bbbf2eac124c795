"""The page in the chart: off unless asked for, hardened, and with no more rights than it needs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bed.programs import program
from tests.flows.bridge.test_chart import CHART, Helm, named, only

NAME = "slurm-bridge-web"
ON = "web: {enabled: true"
KEY = f"{ON}, title: a b, userPrefix: 'oidc:', jwtKeySecret: {{name: slurm-auth-jwt}}}}"


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(program("helm"), tmp_path)


def rights(role: dict[str, Any]) -> set[str]:
    return {
        f"{verb} {resource}.{group}".rstrip(".")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_nothing_of_it_is_there_unless_asked_for(helm: Helm) -> None:
    assert not [it for it in helm.template() if "web" in it["metadata"]["name"]]


def test_it_writes_nothing_but_reviews_and_events(helm: Helm) -> None:
    manifests = helm.template(ON + "}")
    found = rights(only(manifests, "ClusterRole", NAME))
    assert {it for it in found if it.split()[0] not in {"get", "list", "watch"}} == {
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
        "create events.events.k8s.io",
        "patch events.events.k8s.io",
    }
    assert not [it for it in found if "secrets" in it or "log" in it]
    assert NAME not in named(manifests, "Role")


def test_the_key_is_there_only_if_it_is_named(helm: Helm) -> None:
    def pod(values: str) -> dict[str, Any]:
        spec: dict[str, Any] = only(helm.template(values), "Deployment", NAME)["spec"]["template"]["spec"]
        return spec

    plain, keyed = pod(ON + "}"), pod(KEY)
    assert "key" not in {it["name"] for it in plain["volumes"]}
    assert "key" in {it["name"] for it in keyed["volumes"]}
    (container,) = keyed["containers"]
    assert "--slurm-jwt-key=/var/run/secrets/slurm-key/jwt.key" in container["args"]
    assert {"--user-prefix=oidc:", "--name=a b"} <= set(container["args"])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


SIGN_ON = (
    "oidc: {issuer: 'https://login.example.org', clientId: slurm, clientSecret: {name: of-client}, caSecret: ca}"
)


def test_single_sign_on_needs_to_know_where_the_page_is(helm: Helm) -> None:
    done = helm.run("template", str(CHART), values=f"{ON}, {SIGN_ON}}}")
    assert done.returncode
    assert "web.ingress.host or web.oidc.url" in done.stderr
    pod = only(helm.template(f"{ON}, {SIGN_ON}, ingress: {{host: slurm.example.org}}}}"), "Deployment", NAME)
    spec = pod["spec"]["template"]["spec"]
    assert {
        "--public-url=https://slurm.example.org",
        "--oidc-client-secret=/var/run/secrets/oidc/client-secret",
    } <= {*spec["containers"][0]["args"]}
    assert {"oidc", "oidc-ca"} <= {it["name"] for it in spec["volumes"]}


def test_the_command_takes_the_flags_that_the_chart_gives(helm: Helm) -> None:
    values = KEY.removesuffix("}") + f", {SIGN_ON}, ingress: {{host: slurm.example.org}}}}"
    (container,) = only(helm.template(values), "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
    program = Path(sys.executable).with_name(container["command"][0])
    done = subprocess.run([program, *container["args"], "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_ingress_is_over_tls(helm: Helm) -> None:
    assert "Ingress" not in {it["kind"] for it in helm.template(ON + "}")}
    ingress = only(helm.template(ON + ", ingress: {host: slurm.example.org}}"), "Ingress", NAME)
    assert ingress["spec"]["tls"][0]["hosts"] == ["slurm.example.org"]


@pytest.mark.parametrize("users", ["{ann: 'root; rm'}", "{ann: 7}"])
def test_a_table_of_users_that_makes_no_sense_is_refused(helm: Helm, users: str) -> None:
    done = helm.run("template", str(CHART), values=f"{ON}, users: {users}}}")
    assert done.returncode
    assert "users" in done.stderr
