"""What is made of a check."""

from typing import Any

from isthmus.domain.health.activechecks import manifests
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.activecheck import ActiveCheck
from tests.unit.domain.health.activechecks.values import check

SETTINGS = Settings(slurm_image="slurm:1")


def cron_job(it: ActiveCheck, **more: Any) -> dict[str, Any]:
    return manifests.cronjob(it, settings=SETTINGS, **more)


def pod(it: ActiveCheck, **more: Any) -> dict[str, Any]:
    template: dict[str, Any] = cron_job(it, **more)["spec"]["jobTemplate"]["spec"]["template"]
    return template


def variables(it: ActiveCheck) -> dict[str, str]:
    return {word["name"]: word["value"] for word in pod(it)["spec"]["containers"][0]["env"]}


def test_a_cronjob_of_the_checks_name_that_forbids_concurrency() -> None:
    made = cron_job(check(schedule="5 4 * * *", suspend=False, activeDeadlineSeconds=60, failedJobsHistoryLimit=2))
    spec, job = made["spec"], made["spec"]["jobTemplate"]["spec"]
    assert made["metadata"]["name"] == "gpu"
    assert (spec["schedule"], spec["suspend"], spec["concurrencyPolicy"]) == ("5 4 * * *", False, "Forbid")
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 2)
    assert (job["backoffLimit"], job["activeDeadlineSeconds"], job["managedBy"]) == (0, 60, manifests.MANAGED_BY)


def test_a_run_knows_its_check() -> None:
    made = cron_job(check())
    assert made["spec"]["jobTemplate"]["metadata"]["annotations"] == {"slurm.nebius.ai/activecheck": "gpu"}
    assert pod(check())["metadata"]["annotations"]["slurm.nebius.ai/activecheck"] == "gpu"
    assert made["spec"]["jobTemplate"]["metadata"]["labels"]["isthmus.dev/check"] == "gpu"


def test_the_variables_of_soperator() -> None:
    it = check(slurmJobSpec={"sbatchScript": "x", "eachWorkerJobs": True, "maxNumberOfJobs": 5})
    assert variables(it) == {
        "ACTIVE_CHECK_NAME": "gpu",
        "EACH_WORKER_JOBS": "true",
        "ACTIVE_CHECK_MAX_NUMBER_OF_JOBS": "5",
    }


def test_pods_rest_while_the_gate_is_closed_and_runs_in_slurm_are_skipped_one_by_one() -> None:
    assert cron_job(check(kind="k8sJob", suspend=False), closed=True)["spec"]["suspend"]
    assert not cron_job(check(suspend=False), closed=True)["spec"]["suspend"]


def test_a_pod_of_a_k8s_job() -> None:
    container = {
        "image": "i",
        "command": ["a"],
        "args": ["b"],
        "workingDir": "/w",
        "env": [{"name": "X", "value": "1"}],
    }
    container |= {"volumes": [{"name": "jail"}], "volumeMounts": [{"name": "jail", "mountPath": "/mnt/jail"}]}
    it = check(kind="k8sJob", k8sJobSpec={"jobContainer": container}, hostUsers=False, nodeSelector={"a": "b"})
    spec = pod(it)["spec"]
    made = spec["containers"][0]
    assert (made["name"], made["image"], made["command"], made["args"], made["workingDir"]) == (
        "gpu",
        "i",
        ["a"],
        ["b"],
        "/w",
    )
    assert made["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    assert spec["volumes"] == [{"name": "jail"}]
    assert (spec["hostUsers"], spec["nodeSelector"], spec["restartPolicy"]) == (False, {"a": "b"}, "Never")
    assert spec["serviceAccountName"] == "slurm-activecheck-sa"
    assert "initContainers" not in spec
    assert "managedBy" not in cron_job(it)["spec"]["jobTemplate"]["spec"]


def test_a_script_of_a_configmap_takes_the_place_of_the_command() -> None:
    it = check(kind="k8sJob", k8sJobSpec={"scriptRefName": "mine", "jobContainer": {"command": ["a"]}})
    spec = pod(it)["spec"]
    assert spec["containers"][0]["command"] == ["/bin/bash", "/opt/bin/entrypoint.sh"]
    assert spec["volumes"][0]["configMap"]["items"][0]["key"] == "script.sh"


def test_munge_is_there_only_if_asked_for() -> None:
    it = check(kind="k8sJob", k8sJobSpec={"mungeContainer": {"image": "m"}})
    spec = pod(it)["spec"]
    assert [word["name"] for word in spec["initContainers"]] == ["munge"]
    assert {word["name"] for word in spec["volumes"]} == {"slurm-configs", "munge-key", "munge-socket"}


def test_a_pod_template_goes_over_it() -> None:
    template = {
        "metadata": {"annotations": {"mine": "yes"}},
        "spec": {
            "priorityClassName": "low",
            "containers": [{"name": "gpu", "resources": {"limits": {"cpu": "1"}}}],
        },
    }
    made = pod(check(kind="k8sJob", k8sJobSpec={"jobContainer": {"image": "i"}}), template=template)
    assert made["spec"]["priorityClassName"] == "low"
    assert (made["spec"]["containers"][0]["image"], made["spec"]["containers"][0]["resources"]) == (
        "i",
        {"limits": {"cpu": "1"}},
    )
    assert made["metadata"]["annotations"]["mine"] == "yes"


def test_the_script_stands_in_a_configmap() -> None:
    made = manifests.script_configmap(check(slurmJobSpec={"sbatchScript": "#!/bin/sh\n"}))
    assert made is not None
    assert (made["metadata"]["name"], made["data"]) == ("sbatch-script-gpu", {"sbatch.sh": "#!/bin/sh\n"})
    named = check(slurmJobSpec={"sbatchScriptRefName": "mine"})
    assert manifests.script_configmap(named) is None
    assert manifests.script_name(named) == "mine"


def test_the_first_job_has_a_name_of_its_own() -> None:
    made = manifests.first_job(check(), cron_job(check()), uid="c")
    assert made["metadata"]["name"] == "gpu-initial-run"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "c"
    assert made["spec"]["managedBy"] == manifests.MANAGED_BY
