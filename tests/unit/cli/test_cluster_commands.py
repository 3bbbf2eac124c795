"""`isthmus cluster` and `isthmus doctor` as a person types them, as far as no Kubernetes is needed."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from isthmus.cli import connection, doctor
from isthmus.cli.main import app
from isthmus.domain.diagnosis import Finding, Fix
from isthmus.domain.diagnosis.facts import LocalClusterFact
from isthmus.errors import Terminal
from isthmus.inspect import clusteraccess, clustercreation, clusterstatus, hostfacts
from isthmus.inspect.clusteraccess import Address, Entrance
from isthmus.inspect.clusterstatus import PartLine, Problem, Status
from isthmus.inspect.doctor import Report, lacking
from isthmus.model.meta import Key
from tests.unit.cli.helping import help_of

COMMANDS = {
    ("cluster",): "Create, inspect, enter and delete Slurm clusters in Kubernetes.",
    ("cluster", "create"): "Create a Slurm cluster: slurmctld, workers, a login node, slurmrestd, and",
    ("cluster", "list"): "List the clusters.",
    ("cluster", "status"): "Show the parts of a cluster, its nodes and jobs, the last problems,",
    ("cluster", "ssh"): "Log in to a cluster, or run one command there.",
    ("cluster", "exec"): "Run a command on a login node, without an SSH key; without a command, a shell.",
    ("cluster", "delete"): "Delete a cluster: drains its workers first, and keeps users' files unless",
    ("doctor",): "Examine Slurm clusters, the bridge, and this machine.",
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_in_a_sentence_what_it_does(words: tuple[str, ...]) -> None:
    assert COMMANDS[words] in help_of(words)


def test_a_cluster_from_a_few_wishes() -> None:
    made = clustercreation.manifest(
        "demo",
        "hpc",
        workers=3,
        user={"name": "alice", "uid": 1000},
        version="24.11",
        accounting=False,
        node_port=30022,
        resources={"cpu": "2"},
    )
    nodes = made["spec"]["slurmNodes"]
    assert made["metadata"] == {"name": "demo", "namespace": "hpc"}
    assert nodes["worker"] == {
        "size": 3,
        "slurmd": {"image": "isthmus.local/login:24.11"},
        "resources": {"cpu": "2"},
    }
    assert nodes["login"]["sshd"] == {"image": "isthmus.local/login:24.11"}
    assert nodes["login"]["sshdServiceNodePort"] == 30022
    assert not nodes["accounting"]["enabled"]


def test_the_key_of_somebody_who_has_one(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("secret")
    (tmp_path / ".ssh" / "id_rsa.pub").write_text("ssh-rsa AAAA me\n")
    assert clusteraccess.public_key(None, home) == "ssh-rsa AAAA me"
    assert clusteraccess.private_key(home) == tmp_path / ".ssh" / "id_rsa"


def test_a_key_for_somebody_who_has_none(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    public = clusteraccess.public_key(None, home)
    assert public.startswith("ssh-ed25519 ")
    assert clusteraccess.public_key(None, home) == public
    private = clusteraccess.private_key(home)
    assert private is not None
    assert private.stat().st_mode & 0o077 == 0
    assert "PRIVATE KEY" in private.read_text()


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match=r"the public key .* does not exist"):
        clusteraccess.public_key(tmp_path / "nowhere", {})


def test_a_login_node_is_known_by_the_keys_that_kubernetes_holds(tmp_path: Path) -> None:
    entrance = Entrance(Address("localhost", 30022), ("ssh-ed25519 AAAA",))
    words = clusteraccess.ssh_words(
        entrance, Key("hpc", "demo"), user="alice", key=Path("/k"), command=("sinfo", "-N"), place=tmp_path
    )
    known = tmp_path / "known_hosts" / "demo.hpc"
    assert known.read_text() == "demo.hpc ssh-ed25519 AAAA\n"
    assert words[:3] == ["ssh", "-p", "30022"]
    assert "StrictHostKeyChecking=yes" in words
    assert "HostKeyAlias=demo.hpc" in words
    assert words[-4:] == ["alice@localhost", "--", "sinfo", "-N"]


STATUS = Status(
    cluster="demo",
    namespace="hpc",
    phase="Not available",
    ready=False,
    told="NodeSet worker is not ready: 1 of 2",
    version="26.05.1",
    parts=(
        PartLine("slurmctld", "demo", "1/1", well=True),
        PartLine("workers", "worker", "1/2", well=False, told="worker-1 has no node"),
    ),
    nodes={"idle": 1},
    jobs={"pending": 3},
    slurm_answers=True,
    problems=(Problem("pod/worker-1", "FailedScheduling: no node", 65.0),),
    next_steps=("find the cause: isthmus doctor",),
)


def test_the_status_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "with_client", lambda *_: (STATUS,))
    done = CliRunner().invoke(app, ["cluster", "status", "demo"])
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "✗ Cluster hpc/demo: Not available, Slurm 26.05.1",
        "  NodeSet worker is not ready: 1 of 2",
        "  PART        NAME     READY   WHAT IT SAYS",
        "  slurmctld   demo     1/1     -",
        "  workers     worker   1/2     worker-1 has no node",
        "  Nodes: 1 idle",
        "  Jobs: 3 pending",
        "  Last problems:",
        "      65 s ago  pod/worker-1  FailedScheduling: no node",
        "  → find the cause: isthmus doctor",
    ]


def test_no_cluster_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "with_client", lambda *_: ())
    for words in (["cluster", "status"], ["cluster", "list"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0
        assert "isthmus cluster create" in done.output


FINDING = Finding(
    area="images", what="no image", where="pod hpc/worker-0", why="ErrImagePull", remedy=("check the name",)
)


@pytest.mark.parametrize(
    ("findings", "code", "said"),
    [
        ((), 0, "no problem found"),
        ((FINDING,), 1, "✗ images: no image"),
        (
            (Finding(area="nodes", what="drained", where="x", why="y", remedy=("z",), grave=False),),
            0,
            "! nodes: drained",
        ),
    ],
)
def test_the_doctor_says_what_is_wrong_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, findings: tuple[Finding, ...], code: int, said: str
) -> None:
    monkeypatch.setattr(connection, "with_client", lambda *_: Report(("hpc/demo",), findings))
    done = CliRunner().invoke(app, ["doctor", "demo"])
    assert done.exit_code == code
    assert said in done.output


REPARABLE = msgspec.structs.replace(FINDING, fix=Fix("trust", "put it right", "hpc/demo"))


@pytest.mark.parametrize(
    ("answer", "repaired", "code"), [("y\n", True, 0), ("n\n", False, 1), ("", False, 1), (None, True, 0)]
)
def test_the_doctor_repairs_only_what_it_is_told_to_and_looks_again(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, code: int, *, repaired: bool
) -> None:
    done: list[Fix] = []
    monkeypatch.setattr(doctor, "_repair", lambda fix, _: done.append(fix))
    monkeypatch.setattr(doctor, "_examine", lambda *_: Report(("hpc/demo",), () if done else (REPARABLE, FINDING)))
    monkeypatch.setattr(doctor, "_is_asked", lambda: bool(answer))
    ran = CliRunner().invoke(app, ["doctor", "--fix", *(["--yes"] if answer is None else [])], input=answer)
    assert (bool(done), ran.exit_code) == (repaired, code)
    if answer:
        assert "Put it right? [y/N]" in ran.output
    if answer == "":
        assert "add --yes" in str(ran.exception)


def test_a_machine_without_kubernetes_is_examined_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "is_set_up", lambda _: False)
    monkeypatch.setattr(hostfacts, "_clusters", lambda: (LocalClusterFact(name="x", trouble="damaged"),))
    monkeypatch.setenv("PATH", "/nowhere")
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "✗ host: local cluster x: damaged" in done.output


def test_a_finding_has_its_cause_and_its_remedy() -> None:
    told = list(doctor.lines(Report(("hpc/demo",), (FINDING,))))
    assert told[-3:] == ["    where  pod hpc/worker-0", "    why    ErrImagePull", "    → check the name"]


def test_fields_that_an_older_kind_lacks() -> None:
    def definition(**spec: Any) -> dict[str, Any]:
        schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": spec}}}}
        return {"spec": {"versions": [{"name": "v1", "served": True, "schema": schema}]}}

    leaf = {"type": "string"}
    ours = definition(name=leaf, users={"items": {"properties": {"uid": leaf}}}, new=leaf)
    theirs = definition(name=leaf, users={"items": {"properties": {}}})
    assert list(lacking(ours, theirs)) == ["spec.users[].uid", "spec.new"]
    assert list(lacking(ours, ours)) == []


def test_a_cluster_of_this_machine_is_meant_where_nothing_else_is_set_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local = tmp_path / "admin.conf"
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(connection, "_local_clusters", lambda: iter((local,)))
    assert connection.local_kubeconfig() == local
    monkeypatch.setitem(os.environ, "KUBECONFIG", "/elsewhere")
    assert connection.local_kubeconfig() is None


def test_who_has_a_cluster_that_works_is_told_how_to_get_in() -> None:
    assert list(clusterstatus._next(Key("hpc", "demo"), ready=True, broken=False, started=True)) == [
        "isthmus cluster ssh demo",
        "isthmus cluster exec demo -- sinfo",
    ]
