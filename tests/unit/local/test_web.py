"""The page of a local cluster: beside which Slurm it is put, how it is reached, and who can log in."""

import socket
from typing import Any

import pytest

from isthmus.local import lifecycle, web
from isthmus.local.cluster import Cluster
from isthmus.local.progress import PlainProgress
from isthmus.local.state import PublishedPort, Settings

SSH = PublishedPort(30022, 30022)
KEY = {"name": "demo-jwt-key", "key": "jwt.key"}
DEMO = web.Slurm("demo", "demo-restapi", KEY, "isthmus-web-token")


def settings(*publish: PublishedPort, wanted: bool = True) -> Settings:
    return Settings("demo", slot=1, workers=1, slurm="26.05", publish=publish, web=wanted)


def thing(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": "demo", "name": name}, "spec": spec}


def test_the_slurm_is_the_one_whose_tokens_can_be_signed() -> None:
    restapis = [thing("RestApi", "other", controllerRef={"name": "other"})]
    restapis += [thing("RestApi", "demo", controllerRef={"name": "demo"})]
    controllers = [thing("Controller", "demo", jwtKeyRef=KEY), thing("Controller", "other")]
    assert web.choose(restapis, controllers) == DEMO
    assert web.choose(restapis, controllers[1:]) is None
    assert web.choose([], controllers) is None


def test_the_chart_is_told_where_slurm_is_and_who_the_administrator_is_there() -> None:
    told = web.values(DEMO, "my cluster")
    assert told["config"] == {"slurmRestApi": "http://demo-restapi.demo:6820"}
    assert told["web"]["users"] == {"system:serviceaccount:kube-system:isthmus-web-admin": "slurm"}
    assert told["web"]["jwtKeySecret"] == KEY


@pytest.mark.parametrize("slurm", [DEMO, web.EXPECTED])
def test_it_has_a_node_port_waits_for_its_secrets_and_brings_no_roles_for_people(slurm: web.Slurm) -> None:
    volumes = [{"name": "token", "secret": {"secretName": "x"}}, {"name": "tmp", "emptyDir": {}}]
    rendered = [
        thing("ClusterRole", "isthmus-web"),
        thing("ClusterRole", "isthmus-web-viewer"),
        thing("Service", "isthmus-web", ports=[{"name": "web", "port": 80}]),
        thing("Deployment", "isthmus-web", template={"spec": {"volumes": volumes}}),
        None,
    ]
    made = {(it["kind"], it["metadata"]["name"]): it for it in web.objects(rendered, slurm)}
    assert made["Service", "isthmus-web"]["spec"] == {
        "type": "NodePort",
        "ports": [{"name": "web", "port": 80, "nodePort": 30082}],
    }
    assert volumes == [
        {"name": "token", "secret": {"secretName": "x", "optional": True}},
        {"name": "tmp", "emptyDir": {}},
    ]
    assert ("ClusterRole", "isthmus-web") in made
    assert ("ClusterRole", "isthmus-web-viewer") not in made
    assert ("Token", "isthmus-web") in made or slurm == web.EXPECTED  # there the README makes it
    assert f" {made['ServiceAccount', 'isthmus-web-admin']['metadata']['name']} " in web.LOGIN


def test_it_is_published_on_localhost_once_and_where_the_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(web, "PORT", port)
        assert lifecycle._with_page(settings(SSH), PlainProgress()).publish == (SSH,)
    monkeypatch.setattr(web, "PUBLISHED", PublishedPort(port, port))
    published = lifecycle._with_page(settings(SSH), PlainProgress())
    assert published.publish == (SSH, PublishedPort(port, port))
    assert lifecycle._with_page(published, PlainProgress()) == published
    assert lifecycle._with_page(settings(SSH, wanted=False), PlainProgress()).publish == (SSH,)


@pytest.mark.parametrize(
    ("found", "address"),
    [
        (settings(wanted=False), {}),
        (settings(), {"Web page": "http://198.18.32.2:30082"}),
        (settings(PublishedPort(8082, 30082)), {"Web page": "http://localhost:8082"}),
    ],
)
def test_the_address_is_that_of_localhost_where_it_is_published(found: Settings, address: dict[str, str]) -> None:
    assert web.addresses(Cluster(found, {})) == address
