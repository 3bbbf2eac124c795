"""A check that is run by hand: its Job, and how it ended."""

from typing import Any

from isthmus.domain.health.manualruns import Outcome, manual_job, outcome, runs_in_slurm
from isthmus.model.meta import Condition

CRONJOB: dict[str, Any] = {
    "metadata": {"name": "gpu-checks", "namespace": "hpc", "uid": "u-1"},
    "spec": {
        "schedule": "0 0,12 * * *",
        "jobTemplate": {
            "metadata": {"labels": {"app": "check"}, "annotations": {"note": "kept"}},
            "spec": {"managedBy": "isthmus.dev/activecheck", "template": {}},
        },
    },
}


def test_the_job_is_as_kubectl_makes_it_from_the_cronjob() -> None:
    job = manual_job(CRONJOB, suffix="manual-abc123")
    assert job["metadata"]["name"] == "gpu-checks-manual-abc123"
    assert job["metadata"]["namespace"] == "hpc"
    assert job["metadata"]["labels"] == {"app": "check"}
    assert job["metadata"]["annotations"] == {"cronjob.kubernetes.io/instantiate": "manual", "note": "kept"}
    assert job["spec"] == {"managedBy": "isthmus.dev/activecheck", "template": {}}
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("CronJob", "u-1", True)
    assert "blockOwnerDeletion" not in owner


def test_one_node_is_named_in_an_annotation_and_the_template_stays_as_it_is() -> None:
    job = manual_job(CRONJOB, suffix="m-1", node="worker-3")
    assert job["metadata"]["annotations"]["isthmus.dev/check-node"] == "worker-3"
    assert CRONJOB["spec"]["jobTemplate"]["metadata"]["annotations"] == {"note": "kept"}


def test_a_pod_is_sent_to_the_machine_whatever_else_it_wants() -> None:
    pod: dict[str, Any] = {
        "containers": [],
        "affinity": {"podAntiAffinity": {"x": 1}, "nodeAffinity": {"preferredDuringScheduling": []}},
        "tolerations": [{"key": "gpu"}],
    }
    pods = CRONJOB | {"spec": {"jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}}}}
    assert not runs_in_slurm(pods)
    spec = manual_job(pods, suffix="m-1", node="worker-3", machine="m3")["spec"]
    sent = spec["template"]["spec"]
    (term,) = sent["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m3"]}]}
    assert sent["affinity"]["podAntiAffinity"] == {"x": 1}
    assert [it["key"] for it in sent["tolerations"]] == ["gpu", "node.kubernetes.io/unschedulable"]
    assert spec["backoffLimit"] == 0
    assert pod["tolerations"] == [{"key": "gpu"}], "the template stays as it is"
    assert manual_job(pods, suffix="m-2")["spec"]["template"]["spec"] == pod


def test_what_runs_in_slurm_has_no_pod_to_send() -> None:
    assert runs_in_slurm(CRONJOB)
    assert manual_job(CRONJOB, suffix="m-1", machine="m3")["spec"] == CRONJOB["spec"]["jobTemplate"]["spec"]


def test_a_long_name_leaves_room_for_the_suffix() -> None:
    long = CRONJOB | {"metadata": CRONJOB["metadata"] | {"name": "c" * 63}}
    name = manual_job(long, suffix="manual-abc123")["metadata"]["name"]
    assert len(name) == 63
    assert name.endswith("c-manual-abc123")


def test_an_error_of_the_checker_is_no_verdict() -> None:
    assert outcome(()) == Outcome("running")
    assert outcome((Condition("Failed", "False"),)) == Outcome("running")
    assert outcome((Condition("Complete", "True"),)).verdict == "passed"
    failed = Condition("Failed", "True", reason="BackoffLimitExceeded", message="worker-1: GPU 3 is gone")
    assert outcome((failed,)) == Outcome("failed", "worker-1: GPU 3 is gone")
    assert outcome((Condition("Failed", "True", reason="CheckError"),)) == Outcome("error", "CheckError")
    assert outcome((Condition("Failed", "True", reason="DeadlineExceeded"),)).verdict == "error"
    assert outcome((Condition("Failed", "True", reason="CheckCancelled"),)).verdict == "error"
    skipped = Condition("Complete", "True", reason="CheckSkipped", message="no node has GPUs")
    assert outcome((skipped,)) == Outcome("error", "no node has GPUs"), "what was not run was not passed"
