"""LoginSets on a real API server: what they become, what they say, and what they leave alone."""

from collections.abc import AsyncIterator

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from isthmus import names
from isthmus.domain.operator.manifests import common, login, sshd, worker
from isthmus.kube.client import Client
from isthmus.model.objects import CONFIGMAPS, SECRETS, SERVICES, STATEFULSETS
from isthmus.model.slinky import CONTROLLERS, LOGINSETS, NODESETS
from isthmus.operator.loginsets import LoginSetSync
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import Bed, a_minute_before, a_minute_later, working

OF_SLURM = {"name": "slurm"}


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane, namespace, LoginSetSync, now=a_minute_later) as bed:
        yield bed


async def test_a_loginset_becomes_pods_services_and_keys(bed: Bed) -> None:
    await bed.controller()
    service = {"spec": {"type": "NodePort", "externalIPs": ["198.18.9.9"]}, "nodePort": 30422}
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM, service=service)
    await bed.there(bed.world.statefulsets, "login")
    outer = (await bed.raw(SERVICES, "login"))["spec"]
    assert (outer["type"], outer["ports"][0]["port"], outer["ports"][0]["nodePort"]) == ("NodePort", 22, 30422)
    assert "externalIPs" not in outer
    assert (await bed.raw(SERVICES, "login-internal"))["spec"]["clusterIP"] == "None"
    # The controller manager of Kubernetes makes the pod; no kubelet runs it.
    await eventually(lambda: bed.key("login-0") in bed.world.pods)
    await bed.until(bed.world.loginsets, "login", "Ready", "False", saying="pod login-0")
    status = (await bed.kube.get(LOGINSETS, bed.key("login"))).status
    assert status.selector == "app.kubernetes.io/name=login,app.kubernetes.io/instance=login"
    assert status.observed_generation == 1


async def test_w33_host_keys_are_made_once(bed: Bed) -> None:
    await bed.controller()
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    secret = await bed.there(bed.world.secrets, "login-ssh-host-keys")
    assert len(secret.data) == 6
    for name, content in secret.data.items():
        if not name.endswith(".pub"):
            load_ssh_private_key(content, password=None)
    await bed.kube.merge_patch(LOGINSETS, bed.key("login"), {"spec": {"replicas": 2}})
    await eventually(lambda: bed.key("login-1") in bed.world.pods)
    after = await bed.kube.get(SECRETS, bed.key("login-ssh-host-keys"))
    assert after.metadata.resource_version == secret.metadata.resource_version


async def test_people_know_a_login_node_again_that_was_deleted_and_made_anew(bed: Bed) -> None:
    await bed.controller()
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await bed.there(bed.world.statefulsets, "login")
    before = await bed.there(bed.world.secrets, "login-ssh-host-keys")
    await bed.kube.delete(LOGINSETS, bed.key("login"))
    await bed.gone(STATEFULSETS, "login")
    await bed.gone(CONFIGMAPS, "login-ssh-config")
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await bed.there(bed.world.statefulsets, "login")
    after = await bed.kube.get(SECRETS, bed.key("login-ssh-host-keys"))
    assert (after.metadata.uid, after.data) == (before.metadata.uid, before.data)


async def test_a_missing_controller_is_named_and_picked_up_when_it_comes(bed: Bed) -> None:
    await bed.becomes_when_its_controller_comes(
        LOGINSETS, bed.world.loginsets, "login", bed.world.statefulsets, "login"
    )
    await bed.told_of("login")


async def test_a_slurmctld_of_somebody_else_is_joined_with_its_key(bed: Bed) -> None:
    away = {"host": "ctl.example.org", "port": 7000}
    await bed.make(CONTROLLERS, "slurm", external=True, externalConfig=away)
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await bed.until(bed.world.loginsets, "login", "Degraded", "True", saying="has no slurmKeyRef")
    marks = common.labels("slurmctld", "slurm", "controller", cluster="slurm")
    made = {"metadata": common.metadata("slurm-auth", bed.namespace, marks), "stringData": {"slurm.key": "k" * 64}}
    await bed.kube.create(SECRETS, made)
    await bed.there(bed.world.statefulsets, "login")
    pod = (await bed.raw(STATEFULSETS, "login"))["spec"]["template"]["spec"]
    (keys,) = (it["secret"] for it in pod["volumes"] if it["name"] == "slurm-keys")
    assert {it["key"] for it in keys["items"]} == {"slurm.jwks", "slurm.key"}
    assert keys["optional"]  # it is one of the two
    (sackd,) = pod["initContainers"]
    assert sackd["env"] == [{"name": "ISTHMUS_CONF_SERVERS", "value": "ctl.example.org:7000"}]


async def test_w29_sssd_is_optional_and_its_secret_is_followed(bed: Bed) -> None:
    await bed.controller()
    conf = {"name": "sssd", "key": "sssd.conf"}
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM, sssdConfRef=conf)
    await bed.until(bed.world.loginsets, "login", "Degraded", "True", saying="there is no Secret sssd")
    await bed.secret("sssd", sssd_conf=b"[sssd]\n")
    await bed.until(bed.world.loginsets, "login", "Degraded", "False")
    spec = (await bed.raw(STATEFULSETS, "login"))["spec"]["template"]["spec"]
    assert [it["name"] for it in spec["initContainers"]] == ["sackd", "sssd"]
    await eventually(lambda: stamp(bed))
    await bed.quiet()
    before = stamp(bed)
    await bed.secret("sssd", sssd_conf=b"[sssd]\nservices = nss\n")
    await eventually(lambda: stamp(bed) != before)


async def test_settings_of_sshd_reach_running_pods_and_restart_none(bed: Bed) -> None:
    await bed.controller()
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await eventually(lambda: stamp(bed))
    await bed.quiet()
    before, generation = stamp(bed), (await bed.kube.get(STATEFULSETS, bed.key("login"))).metadata.generation
    pod = bed.world.pods.get(bed.key("login-0"))
    patch = {"spec": {"extraSshdConfig": "MaxSessions 3", "rootSshAuthorizedKeys": "ssh-ed25519 AAAA root"}}
    await bed.kube.merge_patch(LOGINSETS, bed.key("login"), patch)
    await eventually(lambda: stamp(bed) != before)
    config = (await bed.kube.get(CONFIGMAPS, bed.key("login-ssh-config"))).data
    assert "\nMaxSessions 3\n" in config["sshd_config"]
    assert "PermitRootLogin prohibit-password\n" in config["sshd_config"]
    assert (await bed.kube.get(STATEFULSETS, bed.key("login"))).metadata.generation == generation
    after = bed.world.pods.get(bed.key("login-0"))
    assert pod is not None
    assert after is not None
    assert after.metadata.uid == pod.metadata.uid


async def test_bad_settings_of_sshd_are_named_and_the_good_ones_stay(bed: Bed) -> None:
    await bed.controller()
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM, extraSshdConfig="MaxSessions 3")
    config = await bed.there(bed.world.configmaps, "login-ssh-config")
    await bed.kube.merge_patch(LOGINSETS, bed.key("login"), {"spec": {"extraSshdConfig": "MaxSesions 4"}})
    await bed.until(bed.world.loginsets, "login", "Degraded", "True", saying="sshd has no option 'MaxSesions'")
    assert (await bed.kube.get(CONFIGMAPS, bed.key("login-ssh-config"))).data == config.data


async def test_people_know_workers_by_their_keys(bed: Bed) -> None:
    await bed.controller()
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await bed.there(bed.world.configmaps, "login-ssh-config")
    gpu = await bed.make(NODESETS, "gpu", controllerRef=OF_SLURM, ssh={"enabled": True})
    keys = {"ssh_host_ed25519_key": "secret", "ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA gpu"}
    await bed.kube.create(SECRETS, sshd.host_keys_secret(gpu.metadata, worker.labels(gpu, "slurm"), keys))

    def known() -> str:
        found = bed.world.configmaps.get(bed.key("login-ssh-config"))
        return found.data["ssh_known_hosts"] if found else ""

    await eventually(lambda: known() == "gpu-* ssh-ed25519 AAAA\n")
    await bed.kube.merge_patch(NODESETS, bed.key("gpu"), {"spec": {"ssh": {"enabled": False}}})
    await eventually(lambda: not known())


async def test_a_name_that_a_nodeset_has_taken_is_told(bed: Bed) -> None:
    await bed.controller()
    taken = await bed.make(NODESETS, "login", controllerRef=OF_SLURM, ssh={"enabled": True})
    await bed.kube.create(CONFIGMAPS, sshd.config(taken.metadata, worker.labels(taken, "slurm"), {"a": "b"}))
    await eventually(lambda: bed.key("login-ssh-config") in bed.world.configmaps)
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await bed.until(bed.world.loginsets, "login", "Degraded", "True", saying="rename one of them")
    assert (await bed.kube.get(CONFIGMAPS, bed.key("login-ssh-config"))).data == {"a": "b"}


async def test_pods_begin_when_the_keys_of_the_cluster_are_there(bed: Bed) -> None:
    await bed.controller()
    await bed.there(bed.world.secrets, "slurm-auth")
    await bed.kube.delete(SECRETS, bed.key("slurm-auth"))
    await eventually(lambda: bed.key("slurm-auth") not in bed.world.secrets)
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
    await bed.until(bed.world.loginsets, "login", "Ready", "False", saying="keys of Controller slurm")
    assert bed.key("login") not in bed.world.statefulsets


async def test_it_goes_with_its_controller_named_or_not_and_at_rest_nothing_is_written(bed: Bed) -> None:
    await bed.controller()
    await bed.make(LOGINSETS, "login", controllerRef={})
    await eventually(lambda: stamp(bed))
    await bed.until(bed.world.loginsets, "login", "Ready", "False", saying="pod login-0")
    await eventually(lambda: any(it.status.replicas for it in bed.world.loginsets.values()))
    await bed.quiet()
    before = len(bed.writes)
    for _ in range(3):
        await bed.sync.reconcile(bed.key("login"))
    assert len(bed.writes) == before
    await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"extraConf": "KillWait=9"}})
    await eventually(lambda: any(it.spec.extra_conf for it in bed.world.controllers.values()))
    await bed.quiet()
    assert len(bed.writes) == before + 1  # ours to the Controller


async def test_a_missing_controller_is_waited_for_at_first(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    del kube
    async with working(control_plane, namespace, LoginSetSync, now=a_minute_before) as bed:
        await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
        await bed.until(bed.world.loginsets, "login", "Progressing", "True", saying="there is no Controller slurm")
        assert bed.condition(bed.world.loginsets, "login", "Degraded")[0] == "False"


async def test_another_version_of_the_operator_leaves_pods_alone_until_something_else_is_wanted(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kube
    with monkeypatch.context() as before:  # the version that called its hashes otherwise
        before.setattr(names, "SPEC_HASH_ANNOTATION", names.SPEC_HASH_ANNOTATION_OLD)
        before.setattr(names, "TEMPLATE_HASH_ANNOTATION", names.TEMPLATE_HASH_ANNOTATION_OLD)
        async with working(control_plane, namespace, LoginSetSync) as bed:
            await bed.controller()
            await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM)
            await eventually(lambda: stamp(bed))
            made = (await bed.kube.get(STATEFULSETS, bed.key("login"))).metadata.annotations
    assert names.SPEC_HASH_ANNOTATION_OLD in made
    assert names.SPEC_HASH_ANNOTATION not in made
    monkeypatch.setattr(login, "_START", "exec sleep infinity")
    async with working(control_plane, namespace, LoginSetSync) as bed:
        await eventually(lambda: bed.key("login") in bed.world.statefulsets)
        await bed.sync.reconcile(bed.key("login"))
        assert "sleep infinity" not in await script(bed)
        found = (await bed.kube.get(STATEFULSETS, bed.key("login"))).metadata
        assert found.generation == 1
        assert found.annotations[names.SPEC_HASH_ANNOTATION] == made[names.SPEC_HASH_ANNOTATION_OLD]
        assert names.SPEC_HASH_ANNOTATION_OLD not in found.annotations
        # How many there are has nothing to do with how each is made.
        await bed.kube.merge_patch(LOGINSETS, bed.key("login"), {"spec": {"replicas": 2}})
        await eventually(lambda: bed.key("login-1") in bed.world.pods)
        assert "sleep infinity" not in await script(bed)
        patch = {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
        await bed.kube.merge_patch(LOGINSETS, bed.key("login"), patch)
        await eventually(lambda: any(it.metadata.generation > 2 for it in bed.world.statefulsets.values()))
        assert "sleep infinity" in await script(bed)


async def script(bed: Bed) -> str:
    spec = (await bed.raw(STATEFULSETS, "login"))["spec"]["template"]["spec"]
    return str(spec["containers"][0]["command"])


async def test_what_the_api_server_refuses_is_told(bed: Bed) -> None:
    await bed.controller()
    wrong = {"spec": {"containers": [{"name": "login", "resources": {"limits": {"cpu": "many"}}}]}}
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM, template=wrong)
    await bed.until(bed.world.loginsets, "login", "Degraded", "True", saying="quantities must match")


async def test_a_port_that_another_service_has_is_taken_when_it_is_free(bed: Bed) -> None:
    await bed.controller()
    port = {"port": 22, "nodePort": 30031}
    meta = {"name": "rival", "namespace": bed.namespace}
    await bed.kube.create(SERVICES, {"metadata": meta, "spec": {"type": "NodePort", "ports": [port]}})
    service = {"spec": {"type": "NodePort"}, "nodePort": 30031}
    await bed.make(LOGINSETS, "login", controllerRef=OF_SLURM, service=service)
    await bed.until(
        bed.world.loginsets, "login", "Degraded", "True", saying="30031: provided port is already allocated"
    )
    await bed.kube.delete(SERVICES, bed.key("rival"))
    await bed.there(bed.world.statefulsets, "login")
    assert (await bed.raw(SERVICES, "login"))["spec"]["ports"][0]["nodePort"] == 30031


def stamp(bed: Bed) -> str:
    pod = bed.world.pods.get(bed.key("login-0"))
    return pod.metadata.annotations.get(names.FILES_HASH_ANNOTATION, "") if pod else ""
