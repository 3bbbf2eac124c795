"""What is made of an ActiveCheck: a CronJob of its name, the ConfigMap of its script, and its first Job.

Names, variables and annotations are Soperator's. The Jobs of a slurmJob are `managedBy` us: Kubernetes makes them
on schedule and keeps their history, and makes no pods.
"""

from collections.abc import Mapping
from typing import Any, Final

from isthmus import names
from isthmus.domain.operator import partnames, podmerge
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.model.activecheck import ActiveCheck, ContainerSpec
from isthmus.model.soperator import GROUP

COMPONENT: Final = "soperatorchecks"
MANAGED_BY: Final = "isthmus.dev/activecheck"
"""Who runs the Jobs of slurmJob checks, as they say in `managedBy`."""

SCRIPT_KEY: Final = "sbatch.sh"
_ENTRYPOINT_KEY: Final = "script.sh"
_ENTRYPOINT: Final = "/opt/bin/entrypoint.sh"
_MAX_JOB_NAME_CHARS: Final = 63


def own_name(check: ActiveCheck) -> str:
    return check.spec.name or check.metadata.name


def labels(check: ActiveCheck) -> dict[str, str]:
    """Make the marks of what belongs to a check."""
    marks = common.labels("activecheck", check.spec.slurm_cluster_ref_name, COMPONENT)
    return {**marks, names.CHECK_LABEL: check.metadata.name}


def script_name(check: ActiveCheck) -> str:
    """The ConfigMap with the script of a check: ours, or the one that it names."""
    spec = check.spec.slurm_job_spec
    return (spec.sbatch_script_ref_name if spec else "") or f"sbatch-script-{own_name(check)}"


def script_configmap(check: ActiveCheck) -> Manifest | None:
    """Make the ConfigMap of a script that stands in the check."""
    spec = check.spec.slurm_job_spec
    if check.spec.check_type != "slurmJob" or spec is None or spec.sbatch_script is None:
        return None
    data = {SCRIPT_KEY: spec.sbatch_script}
    return common.configmap(script_name(check), check.metadata.namespace, labels(check), data)


def cronjob(
    check: ActiveCheck, *, settings: Settings, template: Mapping[str, Any] | None = None, closed: bool = False
) -> Manifest:
    """Make the CronJob; `template` is the PodTemplate's template, and `closed` says that no run may start.

    Runs in Slurm are skipped one by one, with the reason. Pods start by themselves, so their schedule rests.
    """
    spec = check.spec
    in_slurm = spec.check_type == "slurmJob"
    job: Manifest = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "template": _pod(check, settings, template or {}),
    }
    if in_slurm:
        job["managedBy"] = MANAGED_BY
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": common.metadata(check.metadata.name, check.metadata.namespace, labels(check)),
        "spec": {
            "schedule": spec.schedule,
            "suspend": spec.suspend or (closed and not in_slurm),
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 300,
            "successfulJobsHistoryLimit": spec.successful_jobs_history_limit,
            "failedJobsHistoryLimit": spec.failed_jobs_history_limit,
            "jobTemplate": {
                "metadata": {
                    "labels": labels(check),
                    "annotations": {names.ACTIVE_CHECK_ANNOTATION: check.metadata.name},
                },
                "spec": job,
            },
        },
    }


def first_job(check: ActiveCheck, cron_job: Mapping[str, Any], *, uid: str) -> Manifest:
    """Make the Job that runs after creation; its name lets it be made once."""
    template = cron_job["spec"]["jobTemplate"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{own_name(check)[: _MAX_JOB_NAME_CHARS - 12]}-initial-run",
            "namespace": check.metadata.namespace,
            **template["metadata"],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": check.metadata.name,
                    "uid": uid,
                    "controller": True,
                }
            ],
        },
        "spec": template["spec"],
    }


def service_account(cluster: str, namespace: str) -> Manifest:
    """Make the account of the pods of all checks of a cluster."""
    return {"metadata": _rights_metadata(cluster, namespace, "sa")}


def role(cluster: str, namespace: str) -> Manifest:
    """What scripts of checks may do in Kubernetes: find their Job, annotate it, and run other checks."""
    return {
        "metadata": _rights_metadata(cluster, namespace, "role"),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "patch"]},
            {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["get"]},
            {"apiGroups": [GROUP], "resources": ["activechecks"], "verbs": ["get", "list"]},
        ],
    }


def role_binding(cluster: str, namespace: str) -> Manifest:
    return {
        "metadata": _rights_metadata(cluster, namespace, "role-binding"),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": f"{cluster}-activecheck-role",
        },
        "subjects": [{"kind": "ServiceAccount", "name": f"{cluster}-activecheck-sa", "namespace": namespace}],
    }


def _rights_metadata(cluster: str, namespace: str, kind: str) -> Manifest:
    marks = common.labels("activecheck", cluster, COMPONENT)
    return common.metadata(f"{cluster}-activecheck-{kind}", namespace, marks)


def _pod(check: ActiveCheck, settings: Settings, template: Mapping[str, Any]) -> Manifest:
    spec = check.spec
    container = _spec_of(check)
    made: Manifest = {
        "restartPolicy": "Never",
        "serviceAccountName": f"{spec.slurm_cluster_ref_name}-activecheck-sa",
        "enableServiceLinks": False,
        "containers": [_container(check, container, settings)],
        "volumes": _volumes(check, container),
    }
    munge = spec.k8s_job_spec.munge_container if spec.check_type == "k8sJob" else None
    if munge is not None:
        made["initContainers"] = [_munge(munge, settings)]
    optional = {
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "tolerations": list(spec.tolerations),
        "imagePullSecrets": list(container.image_pull_secrets),
    }
    made |= {name: value for name, value in optional.items() if value}
    if spec.host_users is not None:
        made["hostUsers"] = spec.host_users
    given = template.get("metadata") or {}
    return {
        "metadata": {
            "labels": {**(given.get("labels") or {}), **labels(check)},
            "annotations": {
                "kubectl.kubernetes.io/default-container": own_name(check),
                **(given.get("annotations") or {}),
                names.ACTIVE_CHECK_ANNOTATION: check.metadata.name,
            },
        },
        "spec": podmerge.merged(made, template.get("spec") or {}),
    }


def _spec_of(check: ActiveCheck) -> ContainerSpec:
    spec = check.spec.slurm_job_spec
    if check.spec.check_type == "slurmJob":
        return spec.job_container if spec else ContainerSpec()
    return check.spec.k8s_job_spec.job_container


def _container(check: ActiveCheck, container: ContainerSpec, settings: Settings) -> Manifest:
    spec = check.spec
    made: Manifest = {
        "name": own_name(check),
        "image": container.image or settings.slurm_image,
        "imagePullPolicy": container.image_pull_policy,
        "env": [*container.env, *_variables(check)],
        "volumeMounts": list(container.volume_mounts),
        "securityContext": {
            "capabilities": {"add": ["SYS_ADMIN"]},
            "appArmorProfile": _apparmor(container.app_armor_profile),
        },
    }
    optional = {
        "command": list(container.command),
        "args": list(container.args),
        "workingDir": container.working_dir,
    }
    made |= {name: value for name, value in optional.items() if value}
    if spec.check_type == "k8sJob" and spec.k8s_job_spec.script_ref_name:
        made["command"] = ["/bin/bash", _ENTRYPOINT]
        made["volumeMounts"] += [
            {"name": "script-volume", "mountPath": _ENTRYPOINT, "subPath": "entrypoint.sh", "readOnly": True}
        ]
    if spec.check_type == "k8sJob" and spec.k8s_job_spec.munge_container is not None:
        made["volumeMounts"] += common.mounts([("slurm-configs", "/etc/slurm"), ("munge-socket", "/run/munge")])
    return made


def _variables(check: ActiveCheck) -> list[Manifest]:
    spec = check.spec.slurm_job_spec
    if check.spec.check_type != "slurmJob" or spec is None:
        return [{"name": "ACTIVE_CHECK_NAME", "value": check.metadata.name}]
    made = [{"name": "ACTIVE_CHECK_NAME", "value": check.metadata.name}]
    if spec.each_worker_jobs:
        made.append({"name": "EACH_WORKER_JOBS", "value": "true"})
    made.append({"name": "ACTIVE_CHECK_MAX_NUMBER_OF_JOBS", "value": str(spec.max_number_of_jobs)})
    return made


def _apparmor(profile: str) -> Manifest:
    match profile.partition("/"):
        case ("localhost", _, name) if name:
            return {"type": "Localhost", "localhostProfile": name}
        case ("runtime" | "RuntimeDefault", *_):
            return {"type": "RuntimeDefault"}
        case _:
            return {"type": "Unconfined"}


def _volumes(check: ActiveCheck, container: ContainerSpec) -> list[Manifest]:
    made: list[Manifest] = [dict(it) for it in container.volumes]
    spec, cluster = check.spec.k8s_job_spec, check.spec.slurm_cluster_ref_name
    if check.spec.check_type != "k8sJob":
        return made
    if spec.script_ref_name:
        items = [{"key": _ENTRYPOINT_KEY, "path": "entrypoint.sh", "mode": 0o755}]
        made.append({"name": "script-volume", "configMap": {"name": spec.script_ref_name, "items": items}})
    if spec.munge_container is not None:
        made += [
            {"name": "slurm-configs", "configMap": {"name": partnames.config(cluster)}},
            {"name": "munge-key", "secret": {"secretName": f"{cluster}-munge", "optional": True}},
            {"name": "munge-socket", "emptyDir": {"medium": "Memory"}},
        ]
    return made


def _munge(container: ContainerSpec, settings: Settings) -> Manifest:
    made: Manifest = {
        "name": "munge",
        "image": container.image or settings.slurm_image,
        "imagePullPolicy": container.image_pull_policy,
        "restartPolicy": "Always",
        "securityContext": {"appArmorProfile": _apparmor(container.app_armor_profile)},
        "volumeMounts": [
            *common.mounts([("munge-key", "/mnt/munge-key")]),
            *common.mounts([("munge-socket", "/run/munge")], read_only=False),
        ],
    }
    if container.command:
        made["command"] = list(container.command)
    return made
