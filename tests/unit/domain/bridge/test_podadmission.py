"""What a pod gets on its way in, and what it is refused for."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import names
from isthmus.domain.bridge import podadmission
from isthmus.domain.bridge.groups import GANG_ANNOTATION, group_of
from isthmus.domain.bridge.podadmission import Rules, Source
from isthmus.domain.bridge.tenancy import Grant, grant_for
from isthmus.errors import Terminal
from isthmus.model.dra import ClaimSpec
from isthmus.model.meta import ObjectMeta, OwnerReference
from isthmus.model.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceClaimUse,
    Resources,
    SchedulingGate,
    SpreadConstraint,
    Toleration,
)
from isthmus.model.policy import BridgePolicy, BridgePolicySpec, Choice

RULES = Rules()
OURS = names.SCHEDULER_NAME
ASK = names.JOB_ANNOTATIONS
LWS = {names.LWS_NAME_LABEL: "set", names.LWS_GROUP_INDEX_LABEL: "0"}
SCHEDULER = "system:serviceaccount:slurm:slurm-bridge-scheduler"


def pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: str = "",
    phase: str = "Pending",
    **spec: Any,
) -> Pod:
    owners = (OwnerReference("apps/v1", owner, "it", "1", controller=True),) if owner else ()
    meta = ObjectMeta(
        name="it", namespace="batch", labels=labels or {}, annotations=annotations or {}, owner_references=owners
    )
    content = {"scheduler_name": OURS, "containers": (Container("main"),), **spec}
    return Pod(meta, PodSpec(**content), PodStatus(phase=phase))


def create(new: Pod, **given: Any) -> list[str]:
    return podadmission.validate_create(new, given.pop("rules", RULES), grant=given.pop("grant", Grant()), **given)


def refusal(new: Pod, **given: Any) -> str:
    with pytest.raises(Terminal) as caught:
        create(new, **given)
    return str(caught.value)


def change(old: Pod, new: Pod, *, user: str = "alice", **given: Any) -> list[str]:
    return podadmission.validate_update(
        old, new, given.pop("rules", RULES), user=user, grant=given.pop("grant", Grant()), **given
    )


def refused_change(old: Pod, new: Pod, **given: Any) -> str:
    with pytest.raises(Terminal) as caught:
        change(old, new, **given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("asked", "exclusive", "why"),
    [
        ({"count": 33}, "true", 'resource claim "gpus": it asks for 33 devices'),
        ({"selectors": [{"cel": {"expression": "device.driver.reverse()"}}]}, "true", "the method .reverse()"),
        ({"allocationMode": "All"}, "false", "all devices of a node are only for pods that have it to themselves"),
        ({"allocationMode": "All"}, "true", ""),
        ({"allocationMode": "All", "adminAccess": True}, "false", ""),
        ({"capacity": {"requests": {"memory": "1Gi"}}}, "false", ""),
    ],
)
def test_what_claims_ask_for_and_nobody_can_give_is_refused(
    asked: dict[str, Any], exclusive: str, why: str
) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "x", **asked}}]
    spec = msgspec.convert({"devices": {"requests": requests}}, ClaimSpec)
    new = pod(annotations={"slurmjob.slinky.slurm.net/exclusive": exclusive})
    if why:
        assert why in refusal(new, claims={"gpus": spec})
    else:
        assert create(new, claims={"gpus": spec}) == []


def test_a_pod_of_a_managed_namespace_is_handed_over() -> None:
    new = pod(scheduler_name="default-scheduler")
    assert podadmission.captured(new, RULES, managed=True)
    assert not podadmission.captured(new, RULES, managed=False)


def test_a_pod_that_names_us_is_ours_anywhere() -> None:
    assert podadmission.captured(pod(), RULES, managed=False)


def test_a_pod_that_names_another_scheduler_is_left_alone() -> None:
    assert not podadmission.captured(pod(scheduler_name="volcano"), RULES, managed=True)


def test_daemons_stay_on_their_nodes_unless_they_name_us() -> None:
    assert not podadmission.captured(
        pod(owner="DaemonSet", scheduler_name="default-scheduler"), RULES, managed=True
    )
    assert podadmission.captured(pod(owner="DaemonSet"), RULES, managed=True)


def test_a_pod_that_a_kubelet_runs_by_itself_is_left_alone() -> None:
    mirror = pod(annotations={"kubernetes.io/config.mirror": "x"}, scheduler_name="default-scheduler")
    assert not podadmission.captured(mirror, RULES, managed=True)


def test_everything_that_mutation_does() -> None:
    new = pod(scheduler_name="default-scheduler", node_name="n1")
    gang = [Source("Job batch/it", {GANG_ANNOTATION: "True"})]
    assert podadmission.mutate(new, Rules(taint_effect="NoExecute"), owners=gang) == [
        {"op": "add", "path": "/spec/schedulerName", "value": OURS},
        {"op": "remove", "path": "/spec/nodeName"},
        {
            "op": "add",
            "path": "/spec/tolerations",
            "value": [
                {"key": names.MANAGED_TAINT, "operator": "Equal", "value": OURS, "effect": "NoExecute"},
            ],
        },
        {"op": "add", "path": "/metadata/annotations", "value": {GANG_ANNOTATION: "true"}},
    ]


def test_what_is_there_is_kept() -> None:
    new = pod(annotations={"a": "b"}, tolerations=(Toleration("gpu", "Exists"),))
    gang = [Source("Job batch/it", {GANG_ANNOTATION: "true"})]
    toleration, annotation = podadmission.mutate(new, RULES, owners=gang)
    assert toleration["path"] == "/spec/tolerations/-"
    assert annotation["path"] == "/metadata/annotations/slurmjob.slinky.slurm.net~1gang"


@pytest.mark.parametrize(
    "has",
    [
        Toleration(operator="Exists"),
        Toleration(names.MANAGED_TAINT, "Exists"),
        Toleration(names.MANAGED_TAINT, "Equal", OURS),
        Toleration(names.MANAGED_TAINT, "Equal", OURS, "NoSchedule"),
    ],
)
def test_a_pod_that_tolerates_the_taint_gets_no_second_toleration(has: Toleration) -> None:
    assert podadmission.mutate(pod(tolerations=(has,)), Rules(taint_effect="NoSchedule")) == []


@pytest.mark.parametrize(
    "has",
    [Toleration(names.MANAGED_TAINT, "Equal", "x"), Toleration(names.MANAGED_TAINT, "Exists", "", "NoExecute")],
)
def test_a_toleration_of_something_else_does_not_count(has: Toleration) -> None:
    assert podadmission.mutate(pod(tolerations=(has,)), Rules(taint_effect="NoSchedule"))


def test_weakness_29_without_a_configured_effect_every_effect_is_tolerated() -> None:
    (patch,) = podadmission.mutate(pod(), RULES)
    assert patch["value"] == [{"key": names.MANAGED_TAINT, "operator": "Equal", "value": OURS}]


@pytest.mark.parametrize(("said", "marked"), [({}, True), ({GANG_ANNOTATION: "false"}, False)])
def test_pods_of_a_trainjob_start_together_unless_it_objects(said: dict[str, str], marked: bool) -> None:  # noqa: FBT001
    new = pod()
    owners = [Source("Job batch/it", {}), Source("JobSet batch/it", {}), Source("TrainJob batch/it", said)]
    patch = podadmission.mutate(new, RULES, owners=owners)
    assert any("gang" in op["path"] or GANG_ANNOTATION in str(op.get("value")) for op in patch) is marked


def test_the_pods_own_word_about_its_gang_counts() -> None:
    new = pod(owner="Job", annotations={GANG_ANNOTATION: "false"})
    assert not podadmission.wants_gang_of_owner(new)
    gang = [Source("Job batch/it", {GANG_ANNOTATION: "true"})]
    assert not any("annotations" in op["path"] for op in podadmission.mutate(new, RULES, owners=gang))


@given(st.sampled_from(["", "default-scheduler", OURS]), st.sampled_from(["", "n1"]), st.booleans())
def test_mutating_twice_changes_nothing_more(scheduler: str, node: str, taint: bool) -> None:  # noqa: FBT001
    rules = Rules(taint_effect="NoExecute" if taint else "")
    first: dict[str, Any] = {
        op["path"]: op.get("value") for op in podadmission.mutate(pod(scheduler_name=scheduler), rules)
    }
    (added,) = first["/spec/tolerations"]
    again = pod(tolerations=(Toleration(added["key"], added["operator"], added["value"], added.get("effect", "")),))
    assert podadmission.mutate(again, rules) == []
    assert any(op["op"] == "remove" for op in podadmission.mutate(pod(node_name=node), rules)) == bool(node)


def test_a_plain_pod_is_let_in_without_a_word() -> None:
    assert create(pod()) == []


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (pod(labels={names.JOB_ID_LABEL: "7"}), "can't create a pod with a slurm external jobid label"),
        (
            pod(annotations={names.POD_NODE_ANNOTATION: "n"}),
            "can't create a pod with a slurm external node annotation",
        ),
        (pod(annotations={"slurm.job.id": "7"}), "can't create a pod with the annotation slurm.job.id"),
        (
            pod(resource_claims=(ResourceClaimUse("gpu"),), annotations={f"{ASK}gres": "gpu:1"}),
            f'annotation "{ASK}gres" conflicts with resource claim "gpu": explicit DRA requests are authoritative',
        ),
        (
            pod(topology_spread_constraints=(SpreadConstraint("zone"),)),
            "spec.topologySpreadConstraints is not supported by the slurm-bridge scheduler",
        ),
        (
            pod(
                annotations={"slurmjob.slinky.slurm.net/cpu-per-task": "4"},
                containers=(Container("main", Resources({"deviceclass.resource.kubernetes.io/dra.cpu": "1"})),),
            ),
            'cpu-per-task" conflicts with CPU DRA resource "deviceclass.resource.kubernetes.io/dra.cpu": explicit',
        ),
        (
            pod(affinity=Affinity(pod_affinity=PodAffinity((PodAffinityTerm("zone"),)))),
            "required podAffinity is not supported by Slurm",
        ),
    ],
)
def test_weakness_22_what_slurm_cannot_do_is_refused_in_words(new: Pod, message: str) -> None:
    assert message in refusal(new)


def test_weakness_36_every_bad_annotation_is_named_at_once() -> None:
    text = refusal(pod(annotations={f"{ASK}timelimit": "soon", f"{ASK}partion": "gpu"}))
    assert f"{ASK}timelimit is 'soon'" in text
    assert f"did you mean {ASK}partition?" in text


def test_weakness_36_a_bad_annotation_of_the_workload_is_told_with_its_name() -> None:
    owners = [Source("Job batch/train", {f"{ASK}timelimit": "soon"})]
    assert "Job batch/train: " in refusal(pod(owner="Job"), owners=owners)


def test_several_wrongs_come_in_one_refusal() -> None:
    text = refusal(pod(labels={names.JOB_ID_LABEL: "7"}, annotations={f"{ASK}nice": "x"}))
    assert "external jobid label" in text
    assert f"{ASK}nice" in text


def test_weakness_31_nobody_becomes_somebody_else_without_a_policy() -> None:
    grant = grant_for([], namespace="batch", namespace_labels={}, service_account="default")
    assert "user-id 'root' needs a BridgePolicy" in refusal(pod(annotations={f"{ASK}user-id": "root"}), grant=grant)


def test_weakness_31_a_workload_is_no_way_around_the_policy() -> None:
    owners = [Source("Job batch/train", {f"{ASK}user-id": "root"})]
    assert "user-id 'root'" in refusal(pod(owner="Job"), owners=owners)


def test_weakness_31_the_outermost_owner_is_the_one_that_is_judged() -> None:
    spec = BridgePolicySpec(namespaces=("batch",), accounts=Choice(default="physics"))
    policies = [BridgePolicy(spec, ObjectMeta(name="batch"))]
    grant = grant_for(policies, namespace="batch", namespace_labels={}, service_account="default")
    owners = [Source("Job a/b", {f"{ASK}account": "physics"}), Source("JobSet a/b", {f"{ASK}account": "root"})]
    assert "account 'root' is not allowed" in refusal(pod(owner="Job"), owners=owners, grant=grant)
    assert create(pod(owner="Job"), owners=owners[:1], grant=grant) == []


def test_without_a_policy_the_author_is_told_but_controllers_are_spared() -> None:
    grant = grant_for([], namespace="batch", namespace_labels={}, service_account="default")
    (warning,) = create(pod(), grant=grant)
    assert "no BridgePolicy applies to namespace batch" in warning
    assert len(warning) <= 256  # the API server cuts longer ones
    assert create(pod(owner="Job"), grant=grant) == []


def test_anti_affinity_counts_as_kept_only_for_whole_nodes() -> None:
    apart = pod(affinity=Affinity(pod_anti_affinity=PodAffinity((PodAffinityTerm("kubernetes.io/hostname"),))))
    assert create(apart) == []
    assert "shares its node" in refusal(apart, rules=Rules(exclusive=False))


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize("before", [{}, {names.JOB_ID_LABEL: "7"}])
@pytest.mark.parametrize("after", [{names.JOB_ID_LABEL: "8"}, {names.JOB_ID_LABEL: ""}])
def test_weakness_32_nobody_else_writes_the_job_id(
    phase: str, before: dict[str, str], after: dict[str, str]
) -> None:
    old, new = pod(labels=before, phase=phase), pod(labels=after, phase=phase)
    expected = "can't update a running pod's external jobid label" if phase == "Running" else "only the bridge"
    assert expected in refused_change(old, new)
    assert change(old, new, user=SCHEDULER, rules=Rules(bridge_users={SCHEDULER})) == []


def test_weakness_32_nobody_else_takes_the_job_id_away() -> None:
    assert "external jobid label" in refused_change(pod(labels={names.JOB_ID_LABEL: "7"}), pod())


@pytest.mark.parametrize("key", podadmission.OWNED_ANNOTATIONS)
def test_weakness_32_nobody_else_writes_where_a_pod_is(key: str) -> None:
    assert "can't update" in refused_change(pod(annotations={key: "a"}), pod(annotations={key: "b"}))
    assert "can't update" in refused_change(pod(annotations={key: "a"}), pod())


def test_slurm_bridges_words_for_a_running_pods_node() -> None:
    key = names.POD_NODE_ANNOTATION
    text = refused_change(
        pod(annotations={key: "a"}, phase="Running"), pod(annotations={key: "b"}, phase="Running")
    )
    assert text == "can't update a running pod's external node annotation"


def test_a_resize_is_refused() -> None:
    assert "can't resize a Slurm Bridge-managed pod" in refused_change(pod(), pod(), resize=True)


def test_other_changes_are_not_judged_even_where_creation_would_be() -> None:
    old = pod(annotations={f"{ASK}timelimit": "soon"})
    assert change(old, pod(annotations={f"{ASK}timelimit": "soon"}, labels={"a": "b"})) == []


def test_weakness_31_an_update_is_no_way_around_the_policy() -> None:
    assert "user-id 'root'" in refused_change(pod(), pod(annotations={f"{ASK}user-id": "root"}))


def test_asks_may_change_while_the_pod_waits_and_do_nothing_afterwards() -> None:
    asked = {f"{ASK}timelimit": "10"}
    assert change(pod(), pod(annotations=asked)) == []
    (warning,) = change(pod(node_name="n1"), pod(node_name="n1", annotations=asked))
    assert "does not change the pod's Slurm job" in warning


@pytest.mark.parametrize("before", [{}, {names.POD_GROUP_LABEL: "mine"}])
@pytest.mark.parametrize("after", [{}, {names.POD_GROUP_LABEL: "x"}, LWS])
def test_nobody_parts_a_pod_from_its_job_by_a_label(before: dict[str, str], after: dict[str, str]) -> None:
    old, new = pod(labels=before, phase="Running"), pod(labels=after, phase="Running")
    if before == after:
        assert change(old, new) == []
        return
    assert f"the pod's Slurm job is that of {group_of(old)}" in refused_change(old, new)
    ours = Rules(bridge_users={SCHEDULER})
    assert "can't update the label" in refused_change(old, new, user=SCHEDULER, rules=ours)


def test_a_pod_may_change_its_group_before_its_gates_open() -> None:
    gates = (SchedulingGate("example.org/wait"),)
    assert change(pod(scheduling_gates=gates), pod(labels={names.POD_GROUP_LABEL: "x"})) == []


def test_a_pod_stays_in_its_group() -> None:
    labels = {names.JOB_NAME_LABEL: "train"}
    old, new = pod(labels=labels), pod(labels=labels, annotations={GANG_ANNOTATION: "true"})
    assert group_of(old) != group_of(new)
    assert GANG_ANNOTATION in refused_change(old, new)
