"""Controllers on a real API server: what is made of them, what follows changes, and what people are told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.errors import Wait
from isthmus.kube.errors import NotFound
from isthmus.kube.store import Store
from isthmus.model.meta import Key
from isthmus.model.objects import CONFIGMAPS, DAEMONSETS, ENDPOINT_SLICES, SECRETS, SERVICES, STATEFULSETS
from isthmus.model.pod import PODS
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, NODESETS
from isthmus.operator.applier import owner_reference
from isthmus.operator.slurmctld import ControllerSync
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import JWT_KEY, JWT_KEY_REF, LIMIT, SLURM_KEY, SLURM_KEY_REF, Bed, working


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, namespace: str) -> AsyncIterator[Bed]:
    async with working(control_plane, namespace, ControllerSync) as bed:
        yield bed


async def make(bed: Bed, **spec: Any) -> None:
    await bed.make(CONTROLLERS, "slurm", slurmKeyRef=SLURM_KEY_REF, jwtKeyRef=JWT_KEY_REF, **spec)


async def conf(bed: Bed) -> str:
    found = await bed.there(bed.world.configmaps, "slurm-config")
    return found.data["slurm.conf"]


async def shows(bed: Bed, line: str) -> None:
    def there() -> bool:
        found = bed.world.configmaps.get(bed.key("slurm-config"))
        return found is not None and line in found.data["slurm.conf"].splitlines()

    await eventually(there)


async def test_a_controller_becomes_slurmctld_with_all_that_it_needs(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    made = await bed.there(bed.world.statefulsets, "slurm-controller")
    assert made.metadata.owner_references[0].name == "slurm"
    for service in ("slurm-controller", "slurm-controller-internal"):
        assert await bed.there(bed.world.services, service)
    for configmap in ("slurm-config", "slurm-users"):
        assert await bed.there(bed.world.configmaps, configmap)
    assert await bed.there(bed.world.secrets, "slurm-auth")
    raw = await bed.raw(STATEFULSETS, "slurm-controller")
    assert [it["metadata"]["name"] for it in raw["spec"]["volumeClaimTemplates"]] == ["statesave"]
    await bed.until(
        bed.world.controllers, "slurm", "Ready", "False", saying="pod slurm-controller-0 is not ready yet"
    )
    assert bed.world.controllers.get(bed.key("slurm")).status.ready == "0/1"  # type: ignore[union-attr]


async def test_a_slurmctld_that_no_node_takes_is_looked_at_again_when_it_has_had_its_time(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    await bed.there(bed.world.pods, "slurm-controller-0")
    await bed.quiet()
    queue = bed.sync.controller.queue
    assert queue._backlog.next_due() is None, "nothing else is waited for"
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    status = {"status": {"conditions": [refused]}}
    await bed.kube.merge_patch(PODS, bed.key("slurm-controller-0"), status, subresource="status")
    # At once where this machine is so slow that its time is over already, else by looking again.
    await eventually(
        lambda: (
            queue._backlog.next_due() is not None
            or bed.condition(bed.world.controllers, "slurm", "Degraded")[0] == "True"
        )
    )
    await bed.until(bed.world.controllers, "slurm", "Ready", "False", saying="cannot be scheduled: 0/3 nodes")


async def test_services_of_standbys_come_and_go_with_them(bed: Bed) -> None:
    await bed.keys()
    await make(bed, ha={"enabled": True}, persistence={"existingClaim": "shared"})
    for service in ("slurm-controller-0", "slurm-controller-1"):
        assert await bed.there(bed.world.services, service)
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"ha": {"enabled": False}}})
    for service in ("slurm-controller-0", "slurm-controller-1"):
        await bed.gone(SERVICES, service)
    assert await bed.there(bed.world.services, "slurm-controller")


async def test_what_refuses_for_a_slurmctld_that_is_away_follows_the_others(bed: Bed) -> None:
    await bed.keys()
    await make(bed, ha={"enabled": True}, persistence={"existingClaim": "shared"})

    async def standby_is_at(address: str) -> None:
        await bed.there(bed.world.pods, "slurm-controller-1")
        status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        await bed.kube.merge_patch(PODS, bed.key("slurm-controller-1"), status, subresource="status")

        async def refuses_there() -> bool:
            with suppress(NotFound):
                made = await bed.raw(ENDPOINT_SLICES, "slurm-controller-0-away")
                return bool(made["endpoints"][0]["addresses"] == [address])
            return False

        while not await refuses_there():  # noqa: ASYNC110 - its content is in no cache
            await asyncio.sleep(0.02)

    async with asyncio.timeout(LIMIT):
        await standby_is_at("10.1.2.3")
        await standby_is_at("10.1.2.4")
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"ha": {"enabled": False}}})
    await bed.gone(ENDPOINT_SLICES, "slurm-controller-0-away")


async def test_nothing_is_written_when_nothing_changes(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    await bed.there(bed.world.statefulsets, "slurm-controller")
    await bed.until(bed.world.controllers, "slurm", "ConfigApplied", "Unknown")
    await bed.there(bed.world.pods, "slurm-controller-0")
    await bed.until(bed.world.controllers, "slurm", "Progressing", "True", saying="not ready yet")

    async def look_again() -> list[str]:
        bed.writes.clear()
        bed.sync.controller.queue.add(bed.key("slurm"))
        await bed.quiet()
        return list(bed.writes)

    await look_again()
    assert await look_again() == []


async def test_a_missing_key_is_named_and_nothing_starts_without_it(bed: Bed) -> None:
    await make(bed)
    await bed.until(
        bed.world.controllers, "slurm", "Degraded", "True", saying="no Secret jwt-key, which jwtKeyRef names"
    )
    assert bed.key("slurm-controller") not in bed.world.statefulsets
    await bed.keys()
    await bed.there(bed.world.statefulsets, "slurm-controller")
    await bed.until(bed.world.controllers, "slurm", "Degraded", "False")


async def test_a_bad_setting_is_told_and_the_cluster_keeps_its_files(bed: Bed) -> None:
    await bed.keys()
    await make(bed, extraConf="KillWait=7")
    before = await conf(bed)
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"extraConf": "KillWait=7\nClusterName=x"}})
    await bed.until(bed.world.controllers, "slurm", "ConfigApplied", "False", saying="extraConf sets clustername")
    assert await conf(bed) == before


async def test_a_new_nodeset_changes_files_and_leaves_slurmctld_running(bed: Bed) -> None:
    """W41: adding workers must not restart slurmctld."""
    await bed.keys()
    await make(bed)
    before = await bed.there(bed.world.statefulsets, "slurm-controller")
    await bed.make(NODESETS, "gpu", controllerRef={"name": "slurm"}, partition={"enabled": True})
    await shows(bed, "PartitionName=gpu Nodes=gpu")
    await bed.quiet()
    after = await bed.there(bed.world.statefulsets, "slurm-controller")
    assert after.metadata.generation == before.metadata.generation


async def test_files_and_scripts_of_users_are_followed(bed: Bed) -> None:
    """W12: a change of a ConfigMap that is only named reaches the cluster, too."""
    await bed.keys()
    files = {"metadata": bed.meta("more"), "data": {"gres.conf": "AutoDetect=off\n"}}
    await bed.kube.create(CONFIGMAPS, files)
    scripts = {"metadata": bed.meta("around"), "data": {"begin.sh": "#!/bin/sh\n"}}
    await bed.kube.create(CONFIGMAPS, scripts)
    await make(bed, configFileRefs=[{"name": "more"}], prologScriptRefs=[{"name": "around"}])
    await shows(bed, "Prolog=begin.sh")
    found = await bed.there(bed.world.configmaps, "slurm-config")
    revision = found.metadata.annotations[names.CONFIG_HASH_ANNOTATION]
    assert found.data["gres.conf"] == "AutoDetect=off\n"
    await bed.kube.merge_patch(CONFIGMAPS, bed.key("more"), {"data": {"gres.conf": "AutoDetect=nvml\n"}})
    await eventually(
        lambda: bed.world.configmaps.get(bed.key("slurm-config")).data["gres.conf"] == "AutoDetect=nvml\n"  # type: ignore[union-attr]
    )
    now = await bed.there(bed.world.configmaps, "slurm-config")
    assert now.metadata.annotations[names.CONFIG_HASH_ANNOTATION] != revision


async def test_files_are_as_old_as_their_change_however_late_we_hear_of_it(bed: Bed) -> None:
    """Else slurmctld, which has read them by then, would seem not to have."""
    await bed.keys()
    await make(bed)
    await bed.there(bed.world.configmaps, "slurm-config")
    await bed.quiet()

    async def changed() -> tuple[bool, str]:
        found = await bed.kube.get(CONFIGMAPS, bed.key("slurm-config"))
        return "KillWait=9\n" in found.data["slurm.conf"], found.metadata.annotations[names.CHANGED_AT_ANNOTATION]

    with bed.behind(CONFIGMAPS):
        await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"extraConf": "KillWait=9"}})
        while not (before := await changed())[0]:  # noqa: ASYNC110 - the cache does not tell
            await asyncio.sleep(0.02)
        # Its own look ends later than its write can be seen, and no other begins before that.
        await eventually(lambda: not bed.sync.controller.queue.taken)
        with suppress(Wait):
            await bed.sync.reconcile(bed.key("slurm"))
        assert await changed() == before
    await shows(bed, "KillWait=9")


async def test_accounting_is_found_also_where_somebody_else_runs_it(bed: Bed) -> None:
    """W10: an external slurmdbd is where the Accounting says."""
    await bed.keys()
    await make(bed, accountingRef={"name": "acct"})
    await bed.until(bed.world.controllers, "slurm", "Degraded", "True", saying="no Accounting acct")
    away = {"host": "db.example.org", "port": 7777}
    await bed.make(ACCOUNTINGS, "acct", external=True, externalConfig=away)
    await shows(bed, "AccountingStorageHost=db.example.org")
    await shows(bed, "AccountingStoragePort=7777")


async def test_a_slurmctld_of_somebody_else_is_only_written_down(bed: Bed) -> None:
    away = {"host": "ctl.example.org", "port": 7000}
    await bed.make(CONTROLLERS, "slurm", external=True, externalConfig=away)
    await shows(bed, "SlurmctldHost=ctl.example.org")
    await bed.until(bed.world.controllers, "slurm", "SlurmReachable", "False")
    assert bed.key("slurm-controller") not in bed.world.statefulsets


async def test_the_keys_of_a_slurmctld_of_somebody_else_are_passed_on_as_they_are(bed: Bed) -> None:
    away = {"host": "ctl.example.org", "port": 7000}
    users = [{"name": "alice", "uid": 2001}]
    await make(bed, external=True, externalConfig=away, users=users)
    await bed.until(bed.world.controllers, "slurm", "Degraded", "True", saying="there is no Secret slurm-key")
    await bed.keys()
    made = (await bed.there(bed.world.secrets, "slurm-auth")).data
    assert (made["slurm.key"], made["jwt.key"]) == (SLURM_KEY, JWT_KEY)
    assert "slurm.jwks" not in made
    await bed.until(bed.world.controllers, "slurm", "Degraded", "False")
    await bed.there(bed.world.configmaps, "slurm-users")
    assert bed.key("slurm-controller") not in bed.world.services
    # Whoever runs it may have several keys at a time, and daemons tell them apart by their names.
    several = KeySet.only(AuthKey.of(SLURM_KEY, where="a test")).write()
    await bed.secret("slurm-key", slurm_key=several)
    await eventually(lambda: bed.world.secrets.get(bed.key("slurm-auth")).data.get("slurm.jwks") == several)  # type: ignore[union-attr]
    assert "slurm.key" not in (await bed.kube.get(SECRETS, bed.key("slurm-auth"))).data


async def test_a_stand_in_is_there_as_long_as_it_is_asked_for(bed: Bed) -> None:
    await bed.keys()
    annotations = {names.PLACEHOLDER_ANNOTATION: "true", names.WORKLOAD_NAME_ANNOTATION: "controller"}
    await bed.kube.create(
        CONTROLLERS,
        {
            "metadata": bed.meta("slurm", annotations=annotations),
            "spec": {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF},
        },
    )
    await bed.there(bed.world.statefulsets, "controller")
    await bed.there(bed.world.daemonsets, "controller-placeholder")
    raw = await bed.raw(DAEMONSETS, "controller-placeholder")
    pod = raw["spec"]["template"]["spec"]
    assert [it["name"] for it in (*pod["initContainers"], *pod["containers"])] == ["munge", "slurmctld"]
    gone = {"metadata": {"annotations": {names.PLACEHOLDER_ANNOTATION: None}}}
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), gone)
    await bed.gone(DAEMONSETS, "controller-placeholder")


async def test_a_controller_waits_for_nodesets_that_are_being_drained(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    await bed.make(NODESETS, "w", controllerRef={"name": "slurm"})
    await hold(bed)
    await bed.kube.delete(NODESETS, bed.key("w"))
    await bed.kube.delete(CONTROLLERS, bed.key("slurm"))
    await shows(bed, "NodeSet=w Feature=w")
    await bed.quiet()
    assert bed.key("slurm") in bed.world.controllers
    await bed.kube.merge_patch(NODESETS, bed.key("w"), {"metadata": {"finalizers": None}})
    await bed.gone(CONTROLLERS, "slurm")


async def hold(bed: Bed) -> None:
    """Let the NodeSet w be one that is drained before it goes, and the Controller one that waits for such."""
    held = {"metadata": {"finalizers": [names.DRAIN_FINALIZER]}}
    await bed.kube.merge_patch(NODESETS, bed.key("w"), held)
    await bed.there(bed.world.controllers, "slurm")
    await eventually(
        lambda: names.CONTROLLER_FINALIZER in bed.world.controllers.get(bed.key("slurm")).metadata.finalizers  # type: ignore[union-attr]
    )


async def test_a_controller_waits_for_nodesets_of_whose_end_it_has_not_heard(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    await bed.make(NODESETS, "w", controllerRef={"name": "slurm"})
    await hold(bed)
    await bed.quiet()
    with bed.behind(NODESETS):
        await bed.kube.delete(NODESETS, bed.key("w"))
        await bed.kube.delete(CONTROLLERS, bed.key("slurm"))
        await eventually(lambda: all(it.metadata.deletion_timestamp for it in bed.world.controllers.values()))
        await bed.sync.reconcile(bed.key("slurm"))
        found = await bed.kube.get(CONTROLLERS, bed.key("slurm"))
        assert found.metadata.finalizers == (names.CONTROLLER_FINALIZER,)
    await bed.kube.merge_patch(NODESETS, bed.key("w"), {"metadata": {"finalizers": None}})
    await bed.gone(CONTROLLERS, "slurm")


def revision(store: Store[Any], key: Key) -> str:
    found = store.get(key)
    assert found
    return str(found.metadata.annotations[names.CONFIG_HASH_ANNOTATION])


def told(bed: Bed) -> str:
    """The revisions that the pod of slurmctld was told of: of its configuration, then of its keys."""
    pod = bed.world.pods.get(bed.key("slurm-controller-0"))
    assert pod
    return pod.metadata.annotations.get(names.CONFIG_HASH_ANNOTATION, "")


async def test_pods_that_were_there_before_a_change_are_told_to_look_at_their_volumes(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    await bed.there(bed.world.statefulsets, "slurm-controller")
    await bed.there(bed.world.pods, "slurm-controller-0")
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"extraConf": "KillWait=9"}})
    await shows(bed, "KillWait=9")

    await eventually(lambda: told(bed).startswith(revision(bed.world.configmaps, bed.key("slurm-config"))))


async def test_pods_are_told_of_new_keys_though_slurm_does_not_answer(bed: Bed) -> None:
    """With another key of tokens, it answers only when it has that key."""
    await bed.keys()
    await make(bed)
    auth = await bed.there(bed.world.secrets, "slurm-auth")
    await bed.there(bed.world.pods, "slurm-controller-0")
    made = auth.metadata.creation_timestamp
    assert made
    # A change in the second after is one of something that nobody has mounted yet.
    await eventually(lambda: datetime.now(UTC) > made + timedelta(seconds=2))
    await bed.secret("jwt-key", jwt_key=b"k" * 32)

    await eventually(lambda: told(bed).endswith(revision(bed.world.secrets, bed.key("slurm-auth"))))


async def test_new_users_are_brought_to_slurmctld_and_workers_that_run(bed: Bed) -> None:
    await bed.keys()
    await make(bed, users=[{"name": "alice", "uid": 2001}])
    await bed.there(bed.world.pods, "slurm-controller-0")
    nodeset = await bed.make(NODESETS, "w", controllerRef={"name": "slurm"})
    marks = {names.COMPONENT_LABEL: "worker", names.CLUSTER_LABEL: "slurm"}
    owners = [owner_reference(NODESETS, nodeset)]
    worker = {
        "metadata": bed.meta("w-0", labels=marks, ownerReferences=owners),
        "spec": {"containers": [{"name": "slurmd", "image": "x"}]},
    }
    await bed.kube.create(PODS, worker)
    await bed.there(bed.world.pods, "w-0")
    more = [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}]
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"users": more}})

    def told(name: str) -> bool:
        pod, people = bed.world.pods.get(bed.key(name)), bed.world.configmaps.get(bed.key("slurm-users"))
        assert pod
        assert people
        has = pod.metadata.annotations.get(names.FILES_HASH_ANNOTATION)
        return "bob:" in people.data["passwd"] and has == people.metadata.annotations[names.CONFIG_HASH_ANNOTATION]

    for pod in ("slurm-controller-0", "w-0"):
        await eventually(lambda name=pod: told(name))  # type: ignore[misc]


async def test_what_the_side_car_of_slurmctld_says_is_told_to_people(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    await bed.there(bed.world.pods, "slurm-controller-0")
    config = await bed.there(bed.world.configmaps, "slurm-config")
    auth = await bed.there(bed.world.secrets, "slurm-auth")
    revision = " ".join(it.metadata.annotations[names.CONFIG_HASH_ANNOTATION] for it in (config, auth))
    said = f"{revision} \nfatal: Invalid node names in partition x\n"
    ended = {"terminated": {"exitCode": 1, "message": said}}
    status = {
        "phase": "Running",
        "initContainerStatuses": [
            {
                "name": "reconfigure",
                "lastState": ended,
                "state": {"running": {}},
                "ready": True,
                "restartCount": 1,
                "image": "x",
                "imageID": "x",
            }
        ],
    }
    await bed.kube.merge_patch(PODS, bed.key("slurm-controller-0"), {"status": status}, subresource="status")
    await bed.until(
        bed.world.controllers, "slurm", "ConfigApplied", "False", saying="Invalid node names in partition x"
    )
    await eventually(lambda: bed.condition(bed.world.controllers, "slurm", "Degraded")[0] == "True")


async def test_a_new_key_is_announced_beside_the_old_one(bed: Bed) -> None:
    await bed.keys()
    await make(bed)
    first = KeySet.read((await bed.there(bed.world.secrets, "slurm-auth")).data["slurm.jwks"])
    assert first
    await bed.secret("slurm-key", slurm_key=b"n" * 64)

    def announced() -> bool:
        secret = bed.world.secrets.get(bed.key("slurm-auth"))
        held = KeySet.read(secret.data["slurm.jwks"]) if secret else None
        return held is not None and len(held.keys) == 2 and held.signing == first.signing

    await eventually(announced)
    await bed.quiet()
    # Nobody has confirmed that all daemons know it, so the old one stays in use.
    assert announced()


async def test_keys_are_not_in_anything_but_their_secret(bed: Bed) -> None:
    await bed.secret("slurm-key", slurm_key=b"very-secret-indeed")
    await bed.secret("jwt-key", jwt_key=b"also-secret-of-32-bytes-or-more!")
    await make(bed)
    await bed.there(bed.world.statefulsets, "slurm-controller")
    for kind, name in (
        (STATEFULSETS, "slurm-controller"),
        (CONFIGMAPS, "slurm-config"),
        (SERVICES, "slurm-controller"),
        (CONTROLLERS, "slurm"),
    ):
        text = json.dumps(await bed.raw(kind, name))
        assert "very-secret" not in text
        assert "also-secret" not in text
    secret = await bed.kube.get(SECRETS, Key(bed.namespace, "slurm-auth"))
    assert "also-secret" not in repr(secret)
