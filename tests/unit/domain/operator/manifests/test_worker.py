"""The pods of a NodeSet."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import Signals
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset.identity import numbered, on_node
from isthmus.model.slinky import Controller, NodeSet
from tests.unit.domain.operator.nodeset.views import kube_node, nodeset

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def controller(**spec: Any) -> Controller:
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    manifest = {"metadata": {"name": "slurm", "namespace": "slurm", "uid": "c"}, "spec": {**keys, **spec}}
    return msgspec.convert(manifest, Controller)


def made(of: NodeSet | None = None, by: Controller | None = None) -> dict[str, Any]:
    """Make pod 0 of a NodeSet."""
    of = of or nodeset(1)
    return worker.template(of, by or controller(), settings=Settings()).fill(numbered(of, 0))


def slurmd(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = (it for it in pod["spec"]["containers"] if it["name"] == "slurmd")
    return dict(found)


def revision(of: NodeSet | None = None, by: Controller | None = None, **contents: str) -> str:
    return worker.revision(of or nodeset(1), by or controller(), contents)


def test_a_pod_says_who_it_is() -> None:
    pod = made()
    meta = pod["metadata"]
    assert (meta["name"], meta["namespace"], pod["spec"]["hostname"]) == ("worker-0", "slurm", "worker-0")
    assert pod["spec"]["subdomain"] == "slurm-workers-slurm"
    assert meta["labels"] == {
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/instance": "worker",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "isthmus",
        "slinky.slurm.net/cluster": "slurm",
        "controller-revision-hash": revision(),
        "nodeset.slinky.slurm.net/pod-name": "worker-0",
        "nodeset.slinky.slurm.net/pod-hostname": "worker-0",
        "nodeset.slinky.slurm.net/pod-index": "0",
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "nodeset.slinky.slurm.net/pod-protect": "true",
    }
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("NodeSet", "u", True)


def test_it_has_no_token_of_kubernetes_and_finds_others_by_short_names() -> None:
    spec = made()["spec"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["dnsConfig"]["searches"] == [
        "slurm-workers-slurm.slurm.svc.cluster.local",
        "slurm-controller-internal.slurm.svc.cluster.local",
    ]


def test_jobs_share_as_much_memory_as_the_pod_has() -> None:
    pod = made()
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory"}} in pod["spec"]["volumes"]
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in slurmd(pod)["volumeMounts"]  # noqa: S108


def test_shared_memory_that_the_user_mounts_is_left_alone() -> None:
    mount = {"name": "mine", "mountPath": "/dev/shm"}  # noqa: S108
    volume = {"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    template = {"spec": {"volumes": [volume]}}
    pod = made(nodeset(1, slurmd={"volumeMounts": [mount]}, template=template))
    assert [it for it in slurmd(pod)["volumeMounts"] if it["mountPath"] == "/dev/shm"] == [mount]  # noqa: S108
    assert "shared-memory" not in [it["name"] for it in pod["spec"]["volumes"]]


def test_the_line_of_settings_is_one_argument_and_in_no_script() -> None:
    """W38."""
    container = slurmd(made(nodeset(1, extraConf="Weight=10 Feature=fast", slurmd={"args": ["-vv"]})))
    assert container["args"] == ["-Z", "--conf", "Features=fast,worker Weight=10", "-vv"]
    plain = slurmd(made())
    for part in ("command", "startupProbe", "readinessProbe", "lifecycle"):
        assert container[part] == plain[part]


_BESIDE_ANOTHER = r"""
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# As on any host with containers; one that has just started may offer nothing to the groups below.
for controller in $(< /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
done
own=/sys/fs/cgroup/$1
mkdir "$own"
# A group whose last process has just ended can be busy for a moment.
leave() { kill %1; wait; echo 0 > /sys/fs/cgroup/cgroup.procs; until rmdir "$own"/*/ "$own"; do sleep 0.05; done; }
trap leave EXIT
echo 0 > "$own/cgroup.procs"
sleep 600 &
"""
_TELL = r"""
sed -n 's/^0:://p' "/proc/$$/cgroup" "/proc/$!/cgroup"
(echo 0 > "$groups/start/cgroup.procs"; sed -n 's/^0:://p' "/proc/$BASHPID/cgroup")
cat "$groups/cgroup.controllers" "$groups/cgroup.subtree_control"
"""


def test_slurm_can_make_groups_below_that_of_the_container() -> None:
    """On a hierarchy of version 2, in which processes and groups with controllers exclude each other."""
    name = f"isthmus-unit-{os.getpid()}"
    script = f"{_BESIDE_ANOTHER}{worker._GROUPS}{_TELL}"
    words = ["unshare", "--mount", "bash", "-euc", script, "bash", name]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    itself, another, slurmd, offered, given = done.stdout.splitlines()
    assert (itself, another, slurmd) == (f"/{name}/init", f"/{name}/init", f"/{name}/start")
    assert offered
    assert given == offered


def test_groups_of_version_1_are_left_alone() -> None:
    script = f'umount -R /sys/fs/cgroup\nmount -t tmpfs tmpfs /sys/fs/cgroup\n{worker._GROUPS}echo "none:$groups"'
    words = ["unshare", "--mount", "bash", "-euc", script]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "none:\n"


@contextmanager
def run(place: Path, slurmd: str, *, still: tuple[str, str] = ("", "")) -> Iterator[subprocess.Popen[str]]:
    """Run the end of the start script, with a slurmd of these words.

    `still` is a part of the script before which it stands still while the words behind it hold.
    """
    (place / "slurmd").write_text(f"#!/bin/bash\n{slurmd}\n")
    (place / "slurmd").chmod(0o755)
    _, _, script = worker._START.partition('await_one_of "$ISTHMUS_CONF_SERVERS"\n')
    before, while_ = still
    assert script.count(before) == 1 or not before
    script = script.replace(before, f"while {while_}; do sleep 0.01; done; {before}") if before else script
    known = {"PATH": f"{place}:{os.environ['PATH']}", "ISTHMUS_NODE": "n", "ISTHMUS_CONF_SERVERS": "c"}
    # As in a container: who runs the tests by nohup has signals ignored, which a shell cannot change.
    command = ["env", "--default-signal", "bash", "-euc", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=known, cwd=place, start_new_session=True
    ) as shell:
        try:
            yield shell
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, Signals.SIGKILL)


@pytest.mark.parametrize("code", [0, 3])
def test_how_slurmd_ends_is_how_the_container_ends(tmp_path: Path, code: int) -> None:
    with run(tmp_path, f"exit {code}") as shell:
        assert shell.wait(60) == code


SLURMD = "trap 'echo again' HUP; trap 'echo ends; exit 5' TERM; echo begun; while :; do sleep 0.1; done"


def test_signals_are_passed_on_and_end_slurmd_only_if_it_wants_to(tmp_path: Path) -> None:
    with run(tmp_path, SLURMD) as shell:
        assert shell.stdout
        for signal, said in ((None, "begun\n"), (Signals.SIGHUP, "again\n"), (Signals.SIGTERM, "ends\n")):
            if signal:
                shell.send_signal(signal)
            assert shell.stdout.readline() == said
        assert shell.wait(60) == 5


def test_signals_that_come_as_soon_as_slurmd_is_there_are_passed_on(tmp_path: Path) -> None:
    with run(tmp_path, SLURMD, still=("slurmd=$!", "[[ ! -e go ]]")) as shell:
        assert shell.stdout
        assert shell.stdout.readline() == "begun\n"
        for signal in (Signals.SIGHUP, Signals.SIGTERM):
            shell.send_signal(signal)
        (tmp_path / "go").touch()
        assert shell.wait(60) == 5
        assert shell.stdout.read() == "again\nends\n"


def test_how_slurmd_ends_is_told_though_it_ends_before_the_shell_looks_again(tmp_path: Path) -> None:
    with run(tmp_path, SLURMD, still=("kill -0", "[[ -e /proc/$slurmd ]]")) as shell:
        assert shell.stdout
        assert shell.stdout.readline() == "begun\n"
        shell.terminate()
        assert shell.wait(60) == 5


def test_jobs_can_be_interrupted(tmp_path: Path) -> None:
    with run(tmp_path, "exec grep SigIgn /proc/self/status") as shell:
        assert shell.stdout
        _, ignored = shell.stdout.read().split()
        assert not [it for it in (Signals.SIGINT, Signals.SIGQUIT) if int(ignored, 16) >> (it - 1) & 1]


def test_a_static_node_stands_in_slurm_conf() -> None:
    assert slurmd(made(nodeset(1, registration="Static")))["args"] == []


def test_every_slurmctld_is_named() -> None:
    several = controller(
        ha={"enabled": True, "backups": 1}, persistence={"enabled": True, "existingClaim": "shared"}
    )
    env = {it["name"]: it.get("value") for it in slurmd(made(by=several))["env"]}
    hosts = [f"slurm-controller-{n}.slurm.svc:6817" for n in (0, 1)]
    assert env["ISTHMUS_CONF_SERVERS"] == ",".join(hosts)


def test_only_the_key_of_daemons_is_mounted() -> None:
    (secret,) = (it["secret"] for it in made()["spec"]["volumes"] if "secret" in it)
    assert secret["secretName"] == "slurm-auth"
    assert [it["key"] for it in secret["items"]] == ["slurm.jwks"]


def test_munge_runs_beside() -> None:
    pod = made(by=controller(authType="munge"))
    (beside,) = pod["spec"]["initContainers"]
    assert (beside["name"], beside["restartPolicy"]) == ("munge", "Always")
    volumes = {it["name"]: it for it in pod["spec"]["volumes"]}
    assert volumes["munge-key"]["secret"]["items"] == [{"key": "munge.key", "path": "munge.key"}]
    assert "slurm-keys" not in volumes
    mounted = {it["name"] for it in slurmd(pod)["volumeMounts"]}
    assert mounted == {"munge-socket", "shared-memory", "slurm-users"}


def test_privileges_can_be_refused() -> None:
    """W26, slurm-operator 238."""
    assert slurmd(made())["securityContext"] == {"privileged": True}
    asked = nodeset(1, slurmd={"securityContext": {"privileged": False, "runAsUser": 0}})
    assert slurmd(made(asked))["securityContext"] == {"privileged": False, "runAsUser": 0}


def test_the_user_s_template_goes_over_ours() -> None:
    spec = {
        "containers": [{"name": "slurmd", "image": "mine"}, {"name": "beside", "image": "other"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "priorityClassName": "high",
    }
    pod = made(nodeset(1, template={"metadata": {"labels": {"a": "b"}}, "spec": spec}))
    assert [it["image"] for it in pod["spec"]["containers"]] == ["mine", "other"]
    assert {it["name"] for it in pod["spec"]["volumes"]} == {"slurm-keys", "slurm-users", "shared-memory", "data"}
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["metadata"]["labels"]["a"] == "b"


def test_labels_of_ours_are_not_the_users_to_change() -> None:
    stolen = {"metadata": {"labels": {names.INSTANCE_LABEL: "other", names.REVISION_LABEL: "x"}}}
    labels = made(nodeset(1, template=stolen))["metadata"]["labels"]
    assert (labels[names.INSTANCE_LABEL], labels[names.REVISION_LABEL]) != ("other", "x")


def test_a_node_has_one_worker_unless_it_is_oversubscribed() -> None:
    (term,) = made()["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
    assert term["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": "slurmd"}
    assert "podAntiAffinity" not in made(nodeset(1, oversubscribeNode=True))["spec"]["affinity"]


def test_what_the_user_says_of_places_is_kept() -> None:
    own = {"topologyKey": "rack", "labelSelector": {}}
    spec = {"tolerations": [{"key": "x"}], "affinity": {"podAntiAffinity": {REQUIRED: [own]}}}
    pod = made(nodeset(1, template={"spec": spec}))["spec"]
    assert [it["topologyKey"] for it in pod["affinity"]["podAntiAffinity"][REQUIRED]] == [
        "rack",
        "kubernetes.io/hostname",
    ]
    assert [it["key"] for it in pod["tolerations"]] == ["x", names.WORKER_TAINT]


def test_workers_stay_off_the_control_plane() -> None:
    (term,) = made()["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["operator"] == "DoesNotExist"


def test_a_daemon_is_bound_to_its_node_and_puts_up_with_a_cordon() -> None:
    """slurm-operator 259."""
    of = nodeset(1, scalingMode="DaemonSet")
    template = worker.template(of, controller(), settings=Settings())
    pod = template.fill(on_node(of, kube_node("k1.example.org")))
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["k1.example.org"]}]
    assert term["matchExpressions"]  # what held before still holds
    assert pod["spec"]["hostname"] == "k1"
    assert "node.kubernetes.io/unschedulable" in {it["key"] for it in pod["spec"]["tolerations"]}


def test_pods_of_one_template_share_nothing_that_one_could_change() -> None:
    of = nodeset(2, volumeClaimTemplates=[{"metadata": {"name": "scratch"}, "spec": {}}])
    template = worker.template(of, controller(), settings=Settings())
    first, second = template.fill(numbered(of, 0)), template.fill(numbered(of, 1))
    claims = [
        next(it["persistentVolumeClaim"]["claimName"] for it in pod["spec"]["volumes"] if it["name"] == "scratch")
        for pod in (first, second)
    ]
    assert claims == ["scratch-worker-0", "scratch-worker-1"]
    assert first["metadata"]["labels"][names.POD_HOSTNAME_LABEL] == "worker-0"


def test_unprotected_pods_can_be_asked_for() -> None:
    assert names.POD_PROTECT_LABEL not in made(nodeset(1, workloadDisruptionProtection=False))["metadata"]["labels"]


@pytest.mark.parametrize(
    "change",
    [
        {"slurmd": {"image": "new"}},
        {"extraConf": "Weight=2"},
        {"template": {"spec": {"priorityClassName": "high"}}},
        {"ordinalPadding": 2},
        {"oversubscribeNode": True},
        {"registration": "Static"},
        {"volumeClaimTemplates": [{"metadata": {"name": "scratch"}}]},
    ],
)
def test_what_a_pod_depends_on_changes_its_revision(change: dict[str, Any]) -> None:
    assert revision(nodeset(1, **change)) != revision()


@pytest.mark.parametrize(
    "change",
    [
        {"partition": {"enabled": True}},
        {"pinToNode": True},
        {"minReadySeconds": 5},
        {"updateStrategy": {"type": "OnDelete"}},
        {"logfile": {"image": "x"}},
        {"drain": {"timeout": "5m"}},
    ],
)
def test_what_it_does_not_depend_on_leaves_it_alone(change: dict[str, Any]) -> None:
    assert revision(nodeset(9, **change)) == revision()


def test_files_that_are_read_once_change_the_revision() -> None:
    """W12."""
    assert revision(munge="a") != revision(munge="b")


def test_another_operator_restarts_nobody() -> None:
    """The image that we take where nobody says one is not part of it, nor how we write a pod."""
    of = nodeset(1)
    one = worker.template(of, controller(), settings=Settings(login_image="a"))
    other = worker.template(of, controller(), settings=Settings(login_image="b"))
    assert one.revision == other.revision


def test_all_workers_share_a_service_and_a_budget() -> None:
    service, budget = worker.service(controller()), worker.budget(controller())
    assert service["metadata"]["name"] == "slurm-workers-slurm"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    everyone = {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": "slurm"}
    assert service["spec"]["selector"] == everyone
    assert budget["metadata"]["name"] == "slurm-workers-pdb-slurm"
    assert budget["spec"] == {
        "maxUnavailable": 0,
        "selector": {"matchLabels": {**everyone, "nodeset.slinky.slurm.net/pod-protect": "true"}},
    }
