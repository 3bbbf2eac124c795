"""JailedConfigs from a ConfigMap to every node: on a real API server, on real files, with a real Slurm."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.domain.operator.jailedconfigs import updates
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, Invalid
from isthmus.model.jailedconfig import JAILED_CONFIGS, JailedConfig
from isthmus.model.meta import Key, condition
from isthmus.model.objects import SECRETS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.jailed_bed import CLUSTER, COMPLETED, RECONFIGURE, WRITTEN, JailedBed
from tests.flows.operator.parts_bed import LIMIT, Bed

NEWEST = pytest.mark.parametrize("slurm_version", ["26.05"])
ASKED = "*/reconfigure*"


@pytest.fixture
def jailed(control_plane: ControlPlaneBed, kube: Client, namespace: str, tmp_path: Path) -> JailedBed:
    bed = JailedBed(control_plane, kube, namespace, tmp_path)
    bed.fill()
    return bed


@pytest.fixture
def slurm_here(slurm_version: str, slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    return slurm_bed(slurm_version, nodes=2, accounting=False)


@pytest.fixture
def told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody be told again because a slow machine takes its time."""
    monkeypatch.setattr(updates, "TELL_AGAIN", 3600.0)


class StandingClock:
    """A clock that stands still until it is let go: how long a machine takes is not how far apart changes are."""

    def __init__(self) -> None:
        self._stands_at: float | None = time.monotonic()
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead if self._stands_at is None else self._stands_at

    def advance(self, seconds: float) -> None:
        assert self._stands_at is not None
        self._stands_at += seconds

    def go(self) -> None:
        assert self._stands_at is not None
        self._ahead, self._stands_at = self._stands_at - time.monotonic(), None

    def stand(self) -> None:
        self._stands_at = self()


def noticed(bed: Bed) -> tuple[set[str], float]:
    """Which JailedConfigs Slurm is going to read, as the controller knows, and since when it knows."""
    memory = bed.sync._memories.get(bed.key(CLUSTER))
    known = memory.noticed if memory else None
    return ({name for name, _ in known.due}, known.last) if known else (set(), 0.0)


# Files


async def test_a_configmap_becomes_files_and_every_change_of_it(jailed: JailedBed) -> None:
    await jailed.configmap("prolog", file="#!/bin/sh\n")
    async with jailed.writer():
        await jailed.config("prolog", "/opt/slurm_scripts/prolog.sh", "/etc/copy", defaultMode=0o755)
        said = "these are on the shared root: /opt/slurm_scripts/prolog.sh, /etc/copy"
        await jailed.until("prolog", WRITTEN, "True", reason="Success", saying=said)
        assert jailed.read("/opt/slurm_scripts/prolog.sh") == "#!/bin/sh\n"
        assert (jailed.root / "opt/slurm_scripts/prolog.sh").stat().st_mode & 0o777 == 0o755
        await jailed.configmap("prolog", file="#!/bin/bash\n")
        await eventually(lambda: jailed.read("/opt/slurm_scripts/prolog.sh") == "#!/bin/bash\n")
        await jailed.kube.merge_patch(
            JAILED_CONFIGS, jailed.key("prolog"), {"spec": {"items": [{"key": "file", "path": "/etc/other"}]}}
        )
        await eventually(lambda: jailed.read("/etc/other") == "#!/bin/bash\n")
        # What is no longer listed stays: jobs may be using it.
        assert jailed.read("/opt/slurm_scripts/prolog.sh") == "#!/bin/bash\n"
        assert (await jailed.until("prolog", WRITTEN, "True", saying="/etc/other")).status.files_hash


async def test_fields_that_are_set_can_be_unset(jailed: JailedBed) -> None:
    """Modes; that what is done after a change can be unset is tested below, where Slurm is."""
    await jailed.configmap("a", file="x")

    async def becomes(wanted: int, **spec: object) -> None:
        # The whole specification, so that what it lacks is unset, and each time with another change.
        items = [{"key": "file", "path": "/etc/a", **({"mode": spec.pop("mode")} if "mode" in spec else {})}]
        number = len(written)
        items.append({"key": "file", "path": f"/etc/with-{number}"})
        whole = {"configMap": {"name": "a"}, "items": items, **spec}
        patch = [{"op": "replace", "path": "/spec", "value": whole}]
        await jailed.kube.json_patch(JAILED_CONFIGS, jailed.key("a"), patch)
        found = await jailed.until("a", WRITTEN, "True", saying=f"/etc/with-{number}")
        assert (jailed.root / "etc/a").stat().st_mode & 0o777 == wanted
        written.append(found.status.files_hash)

    written: list[str] = []
    async with jailed.writer():
        await jailed.config("a", "/etc/a")
        await becomes(0o644)
        await becomes(0o600, defaultMode=0o600)
        await becomes(0o755, defaultMode=0o600, mode=0o755)
        await becomes(0o600, defaultMode=0o600)
        await becomes(0o755, mode=0o755)
        await becomes(0o644)


async def test_nothing_is_written_before_the_shared_root_is_filled(jailed: JailedBed) -> None:
    (jailed.root / ".isthmus/ready").unlink()
    await jailed.configmap("a", file="x")
    async with jailed.writer():
        await jailed.config("a", "/etc/a")
        await jailed.until("a", WRITTEN, "False", reason="Init", saying="the shared root is not filled yet")
        assert jailed.read("/etc/a") is None
        jailed.fill()
        await jailed.until("a", WRITTEN, "True")
        assert jailed.read("/etc/a") == "x"


async def test_a_configmap_that_is_missing_is_waited_for(jailed: JailedBed) -> None:
    async with jailed.writer():
        await jailed.config("a", "/etc/a", **RECONFIGURE)
        await jailed.until("a", WRITTEN, "False", reason="NotFound", saying="there is no ConfigMap a; create it")
        await jailed.configmap("a", other="x")
        await jailed.until("a", WRITTEN, "False", reason="NotWritten", saying="has no key file; add it")
        await jailed.configmap("a", file="x")
        await jailed.until("a", WRITTEN, "True")
        assert jailed.read("/etc/a") == "x"


async def test_another_clusters_files_are_not_ours_whatever_its_aggregation_key(jailed: JailedBed) -> None:
    await jailed.configmap("mine", file="mine")
    await jailed.configmap("theirs", file="theirs")
    async with jailed.writer():
        await jailed.config("theirs", "/etc/theirs", cluster="another", key="common")
        await jailed.config("mine", "/etc/mine", key="common")
        await jailed.until("mine", WRITTEN, "True")
    assert jailed.read("/etc/theirs") is None
    theirs = await jailed.kube.get(JAILED_CONFIGS, jailed.key("theirs"))
    assert theirs.status.conditions == ()


async def test_two_that_write_one_file_do_not_undo_each_other(jailed: JailedBed) -> None:
    for name in ("first", "second"):
        await jailed.configmap(name, file=name)
    async with jailed.writer():
        await jailed.config("first", "/etc/same")
        await jailed.until("first", WRITTEN, "True")
        # Ages have whole seconds; of one second, the first by name is the older.
        await jailed.config("second", "/etc/same")
        said = "/etc/same is written by the older JailedConfig first; remove it from one of them"
        await jailed.until("second", WRITTEN, "False", reason="NotWritten", saying=said)
        assert jailed.read("/etc/same") == "first"
        await jailed.kube.delete(JAILED_CONFIGS, jailed.key("first"))
        await jailed.until("second", WRITTEN, "True")
        assert jailed.read("/etc/same") == "second"


async def test_a_symbolic_link_cannot_redirect_it(
    jailed: JailedBed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (jailed.root / "out").symlink_to(outside)
    await jailed.configmap("a", file="x")
    async with jailed.writer(covered=("/home",)):
        await jailed.config("a", "/out/a", "/etc/a")
        await jailed.until("a", WRITTEN, "False", saying=f"use the real path: {outside} instead of /out")
        assert list(outside.iterdir()) == []
        assert jailed.read("/etc/a") is None
        await jailed.configmap("b", file="x")
        await jailed.config("b", "/home/b")
        await jailed.until("b", WRITTEN, "False", saying="nodes mount something else at /home")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("etc/a", "a path starts with /"),
        ("/etc/../../a", "no .."),
        ("/./a", "no ."),
        ("/etc//a", "no empty part"),
        ("/etc/", "does not end with /"),
        ("/a\nb", "no control characters"),
        ("/.isthmus/ready", "nothing is written into /.isthmus"),
        ("/proc/sysrq-trigger", "nothing is written into"),
        ("/" + "a" * 1024, "Too long"),
    ],
)
async def test_hostile_paths_are_refused_as_soon_as_they_are_written(
    jailed: JailedBed, path: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        await jailed.config("a", path)


async def test_what_cannot_be_is_refused_by_the_api_server(jailed: JailedBed) -> None:
    with pytest.raises(Invalid, match="list items: each key needs the path of its file"):
        await jailed.config("a")
    with pytest.raises(Invalid, match="Duplicate value"):
        await jailed.config("a", "/etc/a", "/etc/a")
    with pytest.raises(Invalid, match="511"):
        await jailed.config("a", "/etc/a", defaultMode=0o1777)
    with pytest.raises(Invalid, match="Reconfigure"):
        await jailed.config("a", "/etc/a", updateActions=["Restart"])
    await jailed.config("fine", "/etc/..a", "/etc/.../b", "/development", "/a.isthmus")


async def test_who_writes_files_may_read_no_secret(jailed: JailedBed) -> None:
    async with jailed.writer() as writer:
        with pytest.raises(Forbidden):
            await writer.references._client.list(SECRETS, namespace=jailed.namespace)


# Slurm


async def test_a_change_is_complete_when_every_node_has_read_it(jailed: JailedBed, slurm_here: SlurmBed) -> None:
    await jailed.configmap("a", file="1")
    async with jailed.writer(), jailed.operator(slurm_here) as bed:
        await jailed.config("a", "/etc/a", **RECONFIGURE)
        done = await jailed.until("a", COMPLETED, "True", saying="slurmctld and 2 nodes have read it")
        assert done.status.reconfigured_hash == done.status.files_hash != ""
        slurm = bed.world.slurms.of(jailed.key("slurm"))
        assert slurm
        began = {it.name: it.slurmd_start_time.value for it in slurm.nodes.values()}
        said: list[str] = []

        def note(_: Key, __: object, new: JailedConfig | None) -> None:
            told = condition(new.status.conditions, COMPLETED) if new else None
            said.append(f"{told.status} {told.reason}" if told else "")

        # What was told of the first change may be heard of late, and is not meant.
        heard_of = int(done.metadata.resource_version)
        await eventually(lambda: bed.world.jailed_configs.version >= heard_of, within=LIMIT)
        bed.world.jailed_configs.on_change(note)
        await jailed.next_second()
        await jailed.configmap("a", file="2")
        await eventually(lambda: "False Refresh" in said, within=LIMIT)
        again = await jailed.until("a", COMPLETED, "True")
        assert jailed.read("/etc/a") == "2"
        assert again.status.reconfigured_hash == again.status.files_hash != done.status.files_hash
        assert all((it.slurmd_start_time.value or 0) > (began[it.name] or 0) for it in slurm.nodes.values())
        assert {it.type for it in again.status.conditions} == {WRITTEN, COMPLETED}
        # Who asks for nothing any more gets new files, and Slurm is not told: that would be written down before.
        unset = [{"op": "remove", "path": "/spec/updateActions"}]
        await jailed.kube.json_patch(JAILED_CONFIGS, jailed.key("a"), unset)
        last = await jailed.until("a", COMPLETED, "True", reason="MissingAction")
        assert last.status.observed_generation == last.metadata.generation
        await jailed.configmap("a", file="3")
        configs, before = bed.world.jailed_configs, again.status.files_hash
        await eventually(lambda: (it := configs.get(jailed.key("a"))) and it.status.files_hash != before)
        assert jailed.read("/etc/a") == "3"
        await bed.quiet()
        left = await jailed.until("a", COMPLETED, "True", reason="MissingAction")
        assert (left.status.reconfigured_at, left.status.reconfigured_hash) == ("", "")


@pytest.mark.usefixtures("told_once")
async def test_what_changes_together_is_read_once(jailed: JailedBed, slurm_here: SlurmBed, faults: Faults) -> None:
    clock = StandingClock()
    everything = ("a", "b", "alone", "quiet")
    for name in everything:
        await jailed.configmap(name, file="1")
    async with (
        faults.in_front_of(slurm_here.rest_url) as proxy,
        jailed.writer(),
        jailed.operator(slurm_here, proxy.url, clock=clock) as bed,
    ):
        await jailed.config("a", "/etc/a", key="common", **RECONFIGURE)
        await jailed.config("b", "/etc/b", key="common")
        await jailed.config("alone", "/etc/alone", **RECONFIGURE)
        await jailed.config("quiet", "/etc/quiet")
        await eventually(lambda: noticed(bed)[0] == {"a", "b", "alone"}, within=LIMIT)
        clock.go()
        for name in everything:
            await jailed.until(name, COMPLETED, "True")
        assert proxy.count(path=ASKED) == 1
        await jailed.until("quiet", COMPLETED, "True", reason="MissingAction")
        clock.stand()
        await jailed.next_second()
        async with asyncio.TaskGroup() as together:
            for name in everything:
                together.create_task(jailed.configmap(name, file="2"))
        for name in ("a", "b", "alone"):
            await eventually(lambda name=name: jailed.read(f"/etc/{name}") == "2")  # type: ignore[misc]
        await eventually(lambda: noticed(bed)[0] == {"a", "b", "alone"}, within=LIMIT)
        clock.go()
        await proxy.until_seen(path=ASKED, times=2, within=LIMIT)
        for name in everything:
            found = await jailed.until(name, COMPLETED, "True")
            assert name == "quiet" or found.status.reconfigured_hash == found.status.files_hash
        assert proxy.count(path=ASKED) == 2
        # What asks for nothing is never a reason.
        await jailed.configmap("quiet", file="3")
        await eventually(lambda: jailed.read("/etc/quiet") == "3")
        # A member of an aggregation is, though it does not ask itself.
        await jailed.configmap("b", file="3")
        await proxy.until_seen(path=ASKED, times=3, within=LIMIT)


@NEWEST
async def test_who_names_no_cluster_is_told(jailed: JailedBed, slurm_here: SlurmBed) -> None:
    async with jailed.operator(slurm_here):
        await jailed.config("a", "/etc/a", cluster="typo", **RECONFIGURE)
        said = "there is no SlurmCluster typo in this namespace; its label app.kubernetes.io/instance must name"
        await jailed.until("a", COMPLETED, "False", saying=said)


@NEWEST
@pytest.mark.usefixtures("told_once")
async def test_a_restart_of_either_side_is_no_reason(
    jailed: JailedBed, slurm_here: SlurmBed, faults: Faults
) -> None:
    await jailed.configmap("a", file="1")
    async with faults.in_front_of(slurm_here.rest_url) as proxy:
        async with jailed.writer(), jailed.operator(slurm_here, proxy.url):
            await jailed.config("a", "/etc/a", **RECONFIGURE)
            before = await jailed.until("a", COMPLETED, "True")
        inode = (jailed.root / "etc/a").stat().st_ino
        async with jailed.writer() as writer, jailed.operator(slurm_here, proxy.url) as bed:
            await bed.quiet()
            await eventually(lambda: not writer.controller.queue.taken and jailed.key("a") in writer.informer.store)
            await jailed.configmap("other", file="x")
            await jailed.config("other", "/etc/other")
            await jailed.until("other", COMPLETED, "True")
            await bed.quiet()
            after = await jailed.kube.get(JAILED_CONFIGS, jailed.key("a"))
        assert proxy.count(path=ASKED) == 1
        assert after.metadata.resource_version == before.metadata.resource_version
        assert (jailed.root / "etc/a").stat().st_ino == inode


@NEWEST
@pytest.mark.usefixtures("told_once")
async def test_an_operator_that_ended_in_between_goes_on_where_it_was(
    jailed: JailedBed, slurm_here: SlurmBed, faults: Faults
) -> None:
    await jailed.configmap("a", file="1")
    async with faults.in_front_of(slurm_here.rest_url) as proxy, jailed.writer():
        proxy.cut(path=ASKED)
        async with jailed.operator(slurm_here, proxy.url):
            await jailed.config("a", "/etc/a", **RECONFIGURE)
            begun = await jailed.until("a", COMPLETED, "False", reason="Refused")
            assert begun.status.reconfigured_hash
        proxy.heal()
        asked = proxy.count(path=ASKED)
        async with jailed.operator(slurm_here, proxy.url):
            await jailed.until("a", COMPLETED, "True")
        assert proxy.count(path=ASKED) == asked + 1


@NEWEST
async def test_a_node_that_has_not_taken_it_is_named(jailed: JailedBed, slurm_here: SlurmBed) -> None:
    await jailed.configmap("a", file="1")
    async with jailed.writer(), jailed.operator(slurm_here):
        slurm_here.kill("slurmd-n2")
        await jailed.config("a", "/etc/a", **RECONFIGURE)
        await jailed.until("a", COMPLETED, "False", saying="1 of 2 nodes have not loaded it yet: n2")
        slurm_here.start("slurmd-n2")
        await jailed.until("a", COMPLETED, "True")


@NEWEST
@pytest.mark.usefixtures("told_once")
async def test_a_missing_configmap_holds_up_its_aggregation_and_nobody_else(
    jailed: JailedBed, slurm_here: SlurmBed, faults: Faults
) -> None:
    await jailed.configmap("a", file="1")
    async with (
        faults.in_front_of(slurm_here.rest_url) as proxy,
        jailed.writer(),
        jailed.operator(slurm_here, proxy.url),
    ):
        await jailed.config("missing", "/etc/missing", key="common", **RECONFIGURE)
        await jailed.config("a", "/etc/a", key="common", **RECONFIGURE)
        await jailed.until("a", COMPLETED, "False", saying="waits for JailedConfig missing of the same aggregation")
        await jailed.until("missing", COMPLETED, "False", reason="NotFound")
        assert proxy.count(path=ASKED) == 0
        await jailed.configmap("missing", file="1")
        await jailed.until("a", COMPLETED, "True")
        assert proxy.count(path=ASKED) == 1


@NEWEST
async def test_out_of_touch_means_to_wait(jailed: JailedBed, slurm_here: SlurmBed) -> None:
    await jailed.configmap("a", file="1")
    async with jailed.writer(), jailed.operator(slurm_here) as bed:
        slurm_here.kill("slurmrestd")
        await eventually(lambda: not bed.world.slurms.in_touch(jailed.key("slurm")), within=LIMIT)
        await jailed.config("a", "/etc/a", **RECONFIGURE)
        found = await jailed.until("a", COMPLETED, "Unknown", reason="OutOfTouch")
        assert found.status.reconfigured_hash == ""
        slurm_here.start("slurmrestd")
        await jailed.until("a", COMPLETED, "True")


@NEWEST
@pytest.mark.usefixtures("told_once")
async def test_changes_that_follow_each_other_closely_are_read_once(
    jailed: JailedBed, slurm_here: SlurmBed, faults: Faults
) -> None:
    clock = StandingClock()
    async with (
        faults.in_front_of(slurm_here.rest_url) as proxy,
        jailed.writer(),
        jailed.operator(slurm_here, proxy.url, clock=clock) as bed,
    ):
        await jailed.config("a", "/etc/a", **RECONFIGURE)
        for content in "1234":
            clock.advance(0.4)  # seconds; half of one without a change would be long enough
            await jailed.configmap("a", file=content)
            await eventually(lambda content=content: jailed.read("/etc/a") == content)  # type: ignore[misc]
            await eventually(lambda: noticed(bed) == ({"a"}, clock()), within=LIMIT)
        clock.go()
        await jailed.until("a", COMPLETED, "True")
        assert proxy.count(path=ASKED) == 1
