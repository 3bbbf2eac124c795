"""The shared root of a SlurmCluster: what it is filled from, which Jobs there are, and what is told of it."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.domain.operator.clusterparts import Parts, nodeset_part, parts_of, rootjobs, rootstatus
from isthmus.domain.operator.clusterparts.rootjobs import Hashes, SeenRoot
from isthmus.domain.operator.clusterparts.rootstatus import RootView
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.model.pod import Pod
from isthmus.model.slinky import LoginSet, NodeSet
from isthmus.model.soperator import NodeSet as NebiusNodeSet
from isthmus.model.soperator import SlurmCluster
from isthmus.model.workload import OwnJob

JAIL = {"persistentVolumeClaim": {"claimName": "jail"}}
SETTINGS = Settings(cgroup="none", login_image="ours:1")
HASHES = Hashes("p", "r")
OVERWRITE = "downscaleAndOverwritePopulateJail"


def cluster(*, status: dict[str, Any] | None = None, **spec: Any) -> SlurmCluster:
    metadata = {"name": "demo", "namespace": "hpc", "uid": "demo"}
    given = {"populateJail": {}, **spec}
    return msgspec.convert({"metadata": metadata, "spec": given, "status": status or {}}, SlurmCluster)


def made(of: SlurmCluster, *nodesets: NebiusNodeSet) -> Parts:
    return parts_of(of, nodesets, prefix="", settings=SETTINGS)


def part(parts: Parts, kind: str) -> Any:
    (child,) = (it for it in parts.children if it.kind.name == kind)
    return msgspec.convert(child.manifest, child.kind.type)


def filling(of: SlurmCluster) -> Filling:
    found = made(of).filling
    assert found is not None
    return found


# What it consists of


def test_login_nodes_and_workers_live_in_it() -> None:
    parts = made(cluster())
    login: LoginSet = part(parts, "LoginSet")
    workers: NodeSet = part(parts, "NodeSet")
    for shared in (login.spec.shared_root, workers.spec.shared_root):
        assert shared is not None
        assert shared.volume == JAIL
        assert shared.sub_mounts == ()
    assert "volumeMounts" not in login.spec.login  # homes are in it
    assert part(parts, "PersistentVolumeClaim").metadata.name == "jail"
    files = part(parts, "ConfigMap").data
    assert files["plugstack.conf"].startswith("required isthmus_jail.so root=/mnt/jail ")


@pytest.mark.parametrize("spec", [{}, {"populateJail": {"enabled": False}}])
def test_without_the_field_homes_are_shared_alone(spec: dict[str, Any]) -> None:
    parts = made(msgspec.convert({"metadata": {"name": "demo", "namespace": "hpc"}, "spec": spec}, SlurmCluster))
    assert parts.filling is None
    assert part(parts, "LoginSet").spec.shared_root is None
    assert part(parts, "NodeSet").spec.shared_root is None
    assert not [it for it in parts.children if it.kind.name == "ConfigMap"]


def test_the_plugin_comes_before_those_that_are_asked_for() -> None:
    plugin = {"path": "/usr/lib/other.so", "required": True}
    lines = part(made(cluster(plugStackConfig={"customPlugins": [plugin]})), "ConfigMap").data["plugstack.conf"]
    assert [line.split()[1] for line in lines.splitlines()] == ["isthmus_jail.so", "/usr/lib/other.so"]


def test_sub_mounts_go_inside_and_custom_mounts_stay_outside() -> None:
    source = [{"name": "data", "nfs": {"server": "x", "path": "/y"}}]
    inside = {"name": "data", "mountPath": "/data", "volumeSourceName": "data", "readOnly": True}
    scratch = {"name": "scratch", "mountPath": "/scratch", "volumeClaimTemplateSpec": {"accessModes": ["x"]}}
    outside = {"name": "data", "mountPath": "/opt/tools", "volumeSourceName": "data"}
    volumes = {"jailSubMounts": [inside, scratch], "customMounts": [outside]}
    parts = made(
        cluster(
            volumeSources=source,
            slurmNodes={
                "worker": {"size": 1, "volumes": volumes},
                "login": {"volumes": {"jailSubMounts": [inside], "customMounts": [outside]}},
            },
        )
    )
    assert parts.problems == ()
    workers: NodeSet = part(parts, "NodeSet")
    assert workers.spec.shared_root is not None
    data, own = workers.spec.shared_root.sub_mounts
    assert (data.mount_path, data.read_only, data.volume) == ("/data", True, {"nfs": {"server": "x", "path": "/y"}})
    assert (own.mount_path, own.volume) == ("/scratch", {})
    assert [it["metadata"]["name"] for it in workers.spec.volume_claim_templates] == [own.name]
    assert [it["mountPath"] for it in workers.spec.slurmd["volumeMounts"]] == ["/opt/tools"]
    login: LoginSet = part(parts, "LoginSet")
    assert login.spec.shared_root is not None
    assert [it.mount_path for it in login.spec.shared_root.sub_mounts] == ["/data"]
    assert [it["mountPath"] for it in login.spec.login["volumeMounts"]] == ["/opt/tools"]


def test_a_nodeset_of_its_own_lives_in_it_too() -> None:
    mount = {"name": "local", "mountPath": "/local", "volumeSource": {"hostPath": {"path": "/mnt"}}}
    given = {
        "metadata": {"name": "gpu", "namespace": "hpc"},
        "spec": {"slurmd": {"volumes": {"jailSubMounts": [mount]}}},
    }
    child, told = nodeset_part(msgspec.convert(given, NebiusNodeSet), cluster(), prefix="")
    assert told.problems == ()
    shared = msgspec.convert(child.manifest, NodeSet).spec.shared_root
    assert shared is not None
    assert shared.volume == JAIL
    assert [it.mount_path for it in shared.sub_mounts] == ["/local"]


@pytest.mark.parametrize("path", ["/", "/home/../../etc", "/a/../b"])
def test_a_sub_mount_that_leads_out_is_refused_by_name(path: str) -> None:
    mount = {"name": "data", "mountPath": path, "volumeSourceName": "data"}
    source = [{"name": "data", "emptyDir": {}}]
    parts = made(cluster(volumeSources=source, slurmNodes={"login": {"volumes": {"jailSubMounts": [mount]}}}))
    (problem,) = parts.problems
    assert "slurmNodes.login.volumes.jailSubMounts[0].mountPath" in problem
    assert repr(path) in problem


def test_scripts_have_to_be_where_slurm_runs_them() -> None:
    source = [{"name": "scripts", "configMap": {"name": "s"}}]
    mount = {"name": "scripts", "mountPath": "/opt/scripts", "volumeSourceName": "scripts"}
    config = {"prolog": "/opt/scripts/prolog.sh", "taskProlog": "/opt/scripts/task.sh"}

    def ignored(**volumes: Any) -> str:
        worker = {"size": 1, "volumes": volumes}
        parts = made(cluster(volumeSources=source, slurmConfig=config, slurmNodes={"worker": worker}))
        return "; ".join(parts.ignored)

    assert "slurmConfig.prolog (/opt/scripts/prolog.sh is only inside the shared root" in ignored(
        jailSubMounts=[mount]
    )
    assert "taskProlog" not in ignored(jailSubMounts=[mount])
    assert "taskProlog" in ignored(customMounts=[mount])
    assert ignored(jailSubMounts=[mount], customMounts=[mount]) == ""


# What it is filled from


def test_it_is_filled_from_the_image_of_login_nodes_unless_another_is_named() -> None:
    assert filling(cluster()).image == "ours:1"
    assert filling(cluster(slurmNodes={"login": {"sshd": {"image": "mine:2"}}})).image == "mine:2"
    assert filling(cluster(populateJail={"image": "root:3"})).image == "root:3"


def test_s4_a_snapshot_is_what_it_is_filled_from() -> None:
    source = [{"name": "old", "persistentVolumeClaim": {"claimName": "old-jail"}}]
    wish = {"image": "root:3", "jailSnapshotVolume": {"volumeSourceName": "old"}}
    found = filling(cluster(volumeSources=source, populateJail=wish))
    assert found.snapshot == {"persistentVolumeClaim": {"claimName": "old-jail"}}
    assert found.image == "volume:old"
    parts = made(cluster(populateJail={"jailSnapshotVolume": {"volumeClaimTemplateSpec": {}}}))
    assert "populateJail.jailSnapshotVolume: set volumeSourceName" in parts.problems[0]
    parts = made(cluster(populateJail={"jailSnapshotVolume": {"volumeSourceName": "none"}}))
    assert "there is no volume source 'none'" in parts.problems[0]


def test_where_and_how_its_pod_runs_is_as_asked_for() -> None:
    wish = {
        "k8sNodeFilterName": "system",
        "priorityClass": "high",
        "hostUsers": False,
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "registry"}],
        "appArmorProfile": "localhost/mine",
    }
    found = filling(cluster(k8sNodeFilters=[{"name": "system", "nodeSelector": {"a": "b"}}], populateJail=wish))
    assert found.pod == {
        "nodeSelector": {"a": "b"},
        "priorityClassName": "high",
        "hostUsers": False,
        "imagePullSecrets": [{"name": "registry"}],
    }
    assert found.pull_policy == "Always"
    assert found.security == {"appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"}}
    assert "there is no node filter 'x'" in made(cluster(populateJail={"k8sNodeFilterName": "x"})).problems[0]


def test_nothing_is_ever_overwritten_and_who_asks_for_it_is_told() -> None:
    (told,) = made(cluster(populateJail={"overwrite": True})).ignored
    assert "isthmus cluster refresh demo" in told


# Which Jobs there are


def job(name: str, *, hash_: str = "", owner: str = "demo", image: str = "ours:1", **status: Any) -> OwnJob:
    state = status.pop("state", "")
    reason = status.pop("why", "")
    conditions = [{"type": state, "status": "True", "message": reason}] if state else []
    metadata: dict[str, Any] = {
        "name": f"{name}-jail",
        "namespace": "hpc",
        "uid": name,
        "annotations": {names.JAIL_IMAGE_ANNOTATION: image, names.JAIL_HASH_ANNOTATION: hash_ or name[0]},
        "ownerReferences": [
            {"apiVersion": "x", "kind": "SlurmCluster", "name": owner, "uid": owner, "controller": True}
        ],
    }
    if status.pop("leaving", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata, "status": {"conditions": conditions, **status}}, OwnJob)


def steps(of: SlurmCluster, *, at_rest: bool = False, **seen: Any) -> list[tuple[str, str]]:
    return [(it.action, it.does) for it in rootjobs.steps(of, SeenRoot(**seen), HASHES, at_rest=at_rest)]


DONE = job("populate", state="Complete")


def test_the_job_is_made_once_and_stays_as_a_record() -> None:
    assert steps(cluster()) == [("populate", "make")]
    assert steps(cluster(), populate=job("populate")) == []
    assert steps(cluster(), populate=DONE) == []
    assert steps(cluster(), populate=job("populate", state="Failed")) == []


def test_a_newer_image_alone_changes_nothing() -> None:
    assert steps(cluster(), populate=job("populate", hash_="older", state="Complete")) == []


@pytest.mark.parametrize("state", ["", "Failed"])
def test_a_job_that_is_not_done_is_made_anew_when_its_specification_is_mended(state: str) -> None:
    found = job("populate", hash_="older", state=state)
    assert steps(cluster(), populate=found) == [("populate", "remove")]
    assert steps(cluster(), populate=job("populate", hash_="older", state=state, leaving=True)) == []


def test_modes() -> None:
    assert steps(cluster(maintenance="downscale")) == [("populate", "make")]
    delete = cluster(maintenance="downscaleAndDeletePopulateJail")
    assert steps(delete, populate=DONE) == [("populate", "remove")]
    assert steps(delete) == []
    assert steps(cluster(maintenance="skipPopulateJail")) == []
    assert steps(cluster(maintenance="skipPopulateJail"), populate=DONE) == []


def test_in_maintenance_it_is_refreshed_when_all_is_scaled_down_and_not_before() -> None:
    of = cluster(maintenance=OVERWRITE)
    assert steps(of, populate=DONE) == []
    assert steps(of, at_rest=True, populate=job("populate")) == []
    assert steps(of, at_rest=True, populate=DONE) == [("refresh", "make")]
    assert steps(of, at_rest=True, populate=DONE, refresh=job("refresh")) == []
    assert steps(of, at_rest=True, populate=DONE, refresh=job("refresh", state="Complete")) == []
    # Somebody's own one of last month, or one for another image.
    other = job("refresh", owner="", state="Complete")
    assert steps(of, at_rest=True, populate=DONE, refresh=other) == [("refresh", "remove")]
    other = job("refresh", hash_="older", state="Failed")
    assert steps(of, at_rest=True, populate=DONE, refresh=other) == [("refresh", "remove")]


def test_when_maintenance_is_over_its_job_goes_but_nobody_else_s() -> None:
    assert steps(cluster(), populate=DONE, refresh=job("refresh", state="Complete")) == [("refresh", "remove")]
    assert steps(cluster(), populate=DONE, refresh=job("refresh")) == []
    assert steps(cluster(), populate=DONE, refresh=job("refresh", owner="", state="Complete")) == []


# What is told of it


def pod(of: OwnJob, *, code: int | None = None, message: str = "", second: int = 0) -> Pod:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": of.metadata.name, "uid": of.metadata.uid}
    state = {"terminated": {"exitCode": code, "message": message}} if code is not None else {"running": {}}
    given = {
        "metadata": {
            "name": f"{of.metadata.name}-{second}",
            "ownerReferences": [owner],
            "creationTimestamp": datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC),
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "populate", "state": state}]},
    }
    return msgspec.convert(given, Pod)


def ready(image: str, *, day: int = 1) -> str:
    return json.dumps({"image": image, "when": f"2026-01-0{day}T00:00:00+00:00", "files": 1, "revision": "x"})


def view(of: SlurmCluster | None = None, *, wrong: str = "", **seen: Any) -> RootView:
    found = of or cluster()
    return rootstatus.view(found, filling(found), SeenRoot(**seen), Trouble(wrong=wrong))


def test_it_is_told_what_is_under_way_and_what_it_is_filled_from_in_the_end() -> None:
    begun = view()
    assert (begun.filled, begun.reason) == (False, "Filling")
    assert begun.missing
    running = view(populate=job("populate"), pods=(pod(job("populate")),))
    assert (running.filled, running.text) == (False, "the shared root is being filled from ours:1")
    done = view(populate=DONE, pods=(pod(DONE, code=0, message=ready("ours:1")),))
    assert (done.filled, done.reason, done.image, done.wrong, done.missing) == (True, "Filled", "ours:1", "", "")
    assert done.as_condition().status == "True"


def test_what_was_refused_is_told_with_the_last_line_of_the_command_and_what_to_do() -> None:
    failed = job("populate", state="Failed", why="pod failed")
    said = "isthmus: looking\n/mnt/jail is full: 3 kB are free. Remedy: make the volume larger\n"
    found = view(populate=failed, pods=(pod(failed, code=3, message=said),))
    assert (found.filled, found.reason) == (False, "Failed")
    assert "/mnt/jail is full" in found.wrong
    assert "looking" not in found.wrong
    assert "kubectl delete job populate-jail -n hpc" in found.wrong
    assert "pod failed" in view(populate=failed).wrong


def test_a_try_that_failed_is_told_and_somebody_is_called_at_the_second() -> None:
    once, twice = job("populate", failed=1), job("populate", failed=2)
    ended = pod(once, code=1, message="the image went away")
    first = view(populate=once, pods=(ended,))
    assert (first.wrong, first.reason) == ("", "Filling")
    assert "the image went away" in first.missing
    assert "the image went away" in view(populate=twice, pods=(ended,)).wrong
    # The next one is at it.
    assert view(populate=once, pods=(ended, pod(once, second=1))).text.startswith("the shared root is being filled")


def test_a_pod_that_cannot_start_is_told() -> None:
    found = view(wrong="pod x: container image: ErrImagePull", populate=job("populate"))
    assert (found.filled, found.reason) == (False, "Waiting")
    assert "ErrImagePull" in found.wrong


def test_a_newer_image_is_said_to_be_due_and_how() -> None:
    of = cluster(populateJail={"image": "root:2"})
    found = view(of, populate=DONE, pods=(pod(DONE, code=0, message=ready("root:1")),))
    assert (found.filled, found.reason, found.image, found.wanted) == (True, "RefreshDue", "root:1", "root:2")
    assert "isthmus cluster refresh demo -n hpc" in found.text
    assert (found.wrong, found.missing) == ("", "")


def test_what_the_command_says_counts_more_than_what_the_job_was_made_for() -> None:
    """A Job that was deleted and made again finds the root filled, and pulls nothing into it."""
    of = cluster(populateJail={"image": "root:2"}, status={"jailImage": "root:1"})
    again = job("populate", image="root:2", state="Complete")
    assert view(of, populate=again).image == "root:1"
    assert view(of).image == "root:1"
    assert view(of).filled


def test_the_word_of_an_older_job_does_not_count_once_the_root_was_refreshed() -> None:
    told = {"jailImage": "root:2", "jailFilledAt": "2026-01-02T00:00:00+00:00"}
    of = cluster(populateJail={"image": "root:2"}, status=told)
    found = view(of, populate=DONE, pods=(pod(DONE, code=0, message=ready("root:1")),))
    assert (found.reason, found.image) == ("Filled", "root:2")
    # Somebody has given it a new volume.
    found = view(of, populate=DONE, pods=(pod(DONE, code=0, message=ready("root:1", day=3)),))
    assert (found.reason, found.image) == ("RefreshDue", "root:1")


def test_a_refresh_is_told_from_beginning_to_end() -> None:
    of = cluster(maintenance=OVERWRITE, populateJail={"image": "root:2"}, status={"jailImage": "root:1"})
    under_way = view(of, populate=DONE, refresh=job("refresh", image="root:2"))
    assert (under_way.filled, under_way.reason) == (True, "Refreshing")
    assert under_way.text == "the shared root is being refreshed from root:1 to root:2"
    refresh = job("refresh", image="root:2", state="Complete", completionTime="2026-01-02T00:00:00Z")
    done = view(of, populate=DONE, refresh=refresh, pods=(pod(refresh, code=0, message=ready("root:2", day=2)),))
    assert (done.reason, done.image) == ("Refreshed", "root:2")
    assert "set maintenance to none" in done.text
    failed = job("refresh", state="Failed")
    broken = view(of, populate=DONE, refresh=failed, pods=(pod(failed, code=3, message="too small"),))
    assert (broken.filled, broken.reason) == (True, "RefreshFailed")
    assert "too small" in broken.wrong
    # Nobody has to stop working because somebody's own refresh did not succeed.
    live = cluster(populateJail={"image": "root:2"}, status={"jailImage": "root:1"})
    broken = view(live, populate=DONE, refresh=failed, pods=(pod(failed, code=3, message="too small"),))
    assert (broken.filled, broken.wrong) == (True, "")
    assert "too small; then: isthmus cluster refresh demo -n hpc" in broken.text


def test_where_filling_is_skipped_nobody_claims_anything() -> None:
    told = view(cluster(maintenance="skipPopulateJail")).as_condition()
    assert (told.status, told.reason) == ("Unknown", "Skipped")


def test_the_mode_is_told_as_soperator_does() -> None:
    told = rootstatus.mode_condition(cluster(maintenance=OVERWRITE))
    assert (told.type, told.reason) == ("PopulateJailMode", OVERWRITE)
