"""The status of a SlurmCluster's shared root: whether it is filled, from what, and what prevents it."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from isthmus import names
from isthmus.domain.kube import conditions
from isthmus.domain.kube.conditions import no, yes
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.domain.operator.clusterparts.rootjobs import DELETE, OVERWRITE, SKIP, SeenRoot
from isthmus.domain.operator.manifests import populate
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.model.meta import Condition
from isthmus.model.pod import Pod, Terminated
from isthmus.model.soperator import SlurmCluster
from isthmus.model.workload import OwnJob

MODE: Final = "PopulateJailMode"
POPULATED: Final = "JailPopulated"

_MODES: Final = {
    "none": "the shared root is filled once",
    "downscale": "everything is scaled down",
    DELETE: "everything is scaled down, and the Job that fills the shared root is deleted; the root is left alone",
    OVERWRITE: "everything is scaled down, then the shared root is refreshed; what users wrote is kept",
    SKIP: "nothing is filled; the shared root is used as it is",
}
_TRIES: Final = 2
"""Number of failed pods from which on a user should look."""


class Held(NamedTuple):
    """What a root holds, and since when, as texts that can be compared."""

    image: str = ""
    since: str = ""


class _Ready(msgspec.Struct):
    image: str
    when: str = ""


class RootView(msgspec.Struct, frozen=True, kw_only=True):
    """How the root is. `image` is what its files are of, as far as that is known."""

    filled: bool
    image: str = ""
    since: str = ""
    wanted: str = ""
    reason: str = ""
    text: str = ""
    wrong: str = ""
    missing: str = ""

    def as_condition(self) -> Condition:
        if not self.reason:
            return conditions.unknown(POPULATED, "Skipped", self.text)
        return (yes if self.filled else no)(POPULATED, self.reason, self.text)


def mode_condition(cluster: SlurmCluster) -> Condition:
    """The mode in which the root is, as soperator does: the reason is the mode."""
    mode = cluster.spec.maintenance
    return yes(MODE, mode, _MODES[mode])


def view(cluster: SlurmCluster, wanted: Filling, seen: SeenRoot, trouble: Trouble) -> RootView:
    """The state of the root. `trouble` is what keeps the pods of the Job from doing their work."""
    held = _held(cluster, seen)
    found = _view(cluster, wanted, seen, trouble, held.image)
    return msgspec.structs.replace(found, image=held.image, since=held.since, wanted=wanted.image)


def _view(cluster: SlurmCluster, wanted: Filling, seen: SeenRoot, trouble: Trouble, image: str) -> RootView:
    if cluster.spec.maintenance == SKIP:
        return RootView(filled=True, text=_MODES[SKIP])
    refresh = seen.refresh
    if refresh is not None and not refresh.complete and image:
        return _refresh_view(cluster, refresh, seen, trouble, image)
    job = seen.populate
    if job is not None and job.failure:
        return _failed_view(job, seen)
    if not image:
        return _filling_view(job, wanted, seen, trouble)
    if image != wanted.image:
        text = (
            f"the shared root is from {image}, the specification names {wanted.image}: preview the changes and "
            f"apply them with isthmus cluster refresh {cluster.metadata.name} -n {cluster.metadata.namespace}"
            f" (or by maintenance: {OVERWRITE})"
        )
        return RootView(filled=True, reason="RefreshDue", text=text)
    done = "; set maintenance to none" if cluster.spec.maintenance == OVERWRITE and refresh else ""
    return RootView(
        filled=True,
        reason="Refreshed" if refresh else "Filled",
        text=f"the shared root is from {image}{done}",
    )


def _filling_view(job: OwnJob | None, wanted: Filling, seen: SeenRoot, trouble: Trouble) -> RootView:
    if job is None:
        text = "the Job that fills the shared root is being created"
        return RootView(filled=False, reason="Filling", text=text, missing=text)
    ended = _last_end(job, seen.pods)
    if ended and ended.exit_code:
        text = f"filling the shared root is retried: {_told(ended)}"
        wrong = text if job.status.failed >= _TRIES else ""
        reason = "Failing" if wrong else "Filling"
        return RootView(filled=False, reason=reason, text=text, wrong=wrong, missing=text)
    if trouble.wrong:
        text = f"the shared root cannot be filled: {trouble.wrong}"
        return RootView(filled=False, reason="Waiting", text=text, wrong=text)
    text = f"the shared root is being filled from {wanted.image}"
    return RootView(filled=False, reason="Filling", text=text, missing=text)


def _refresh_view(cluster: SlurmCluster, job: OwnJob, seen: SeenRoot, trouble: Trouble, image: str) -> RootView:
    """The state of a refresh. Whatever its outcome, the root stays usable, so the cluster stays available."""
    to = job.metadata.annotations.get(names.JAIL_IMAGE_ANNOTATION, "")
    in_maintenance = cluster.spec.maintenance == OVERWRITE
    reason, text = "Refreshing", f"the shared root is being refreshed from {image} to {to}"
    wrong = ""
    if job.failure:
        meta = cluster.metadata
        again = _delete(job) if in_maintenance else f"isthmus cluster refresh {meta.name} -n {meta.namespace}"
        reason, wrong = "RefreshFailed", f"the shared root cannot be refreshed: {_why(job, seen)}; then: {again}"
    elif trouble.wrong:
        wrong = f"the shared root cannot be refreshed: {trouble.wrong}"
    return RootView(filled=True, reason=reason, text=wrong or text, wrong=wrong if in_maintenance else "")


def _failed_view(job: OwnJob, seen: SeenRoot) -> RootView:
    text = f"the shared root cannot be filled: {_why(job, seen)}; then: {_delete(job)}, and it is retried"
    return RootView(filled=False, reason="Failed", text=text, wrong=text)


def _why(job: OwnJob, seen: SeenRoot) -> str:
    ended = _last_end(job, seen.pods)
    told = _told(ended) if ended and ended.exit_code else job.failure.message if job.failure else ""
    return told.rstrip(". ")


def _delete(job: OwnJob) -> str:
    return f"kubectl delete job {job.metadata.name} -n {job.metadata.namespace}"


def _held(cluster: SlurmCluster, seen: SeenRoot) -> Held:
    """Find the image of the files in the root: the newest report of finished Jobs, and of the status.

    A Job that finds a root filled says since when it is; so its word never counts for more than it should.
    """
    known = [Held(cluster.status.jail_image, cluster.status.jail_filled_at)] if cluster.status.jail_image else []
    for job in (seen.populate, seen.refresh):
        if job is None or not job.complete:
            continue
        ended = _last_end(job, seen.pods)
        told = held_by(ended.message) if ended else None
        if told:
            known.append(told)
        elif not known:
            at = job.status.completion_time
            image = job.metadata.annotations.get(names.JAIL_IMAGE_ANNOTATION, "unknown")
            known.append(Held(image, at.isoformat() if at else ""))
    return max(known, key=lambda it: it.since, default=Held())


def held_by(message: str) -> Held | None:
    """Read what our command says in the end: what `ready` of the root says."""
    try:
        told = msgspec.json.decode(message, type=_Ready)
    except msgspec.DecodeError:
        return None
    return Held(told.image, told.when) if told.image else None


def _last_end(job: OwnJob, pods_: Iterable[Pod]) -> Terminated | None:
    """Find how our command ended in the newest pod of a Job; None while it runs, or where nothing is known."""
    newest = max((it for it in pods_ if _is_of(it, job)), key=_age, default=None)
    for status in newest.status.container_statuses if newest else ():
        if status.name == populate.CONTAINER:
            return status.state.terminated
    return None


def _age(pod: Pod) -> tuple[float, bool]:
    """Order pods by when they were made; of two in the same second, the one that runs is the newer."""
    made = pod.metadata.creation_timestamp
    return made.timestamp() if made else 0.0, pod.status.phase not in {"Failed", "Succeeded"}


def _is_of(pod: Pod, job: OwnJob) -> bool:
    return any(owner.uid == job.metadata.uid for owner in pod.metadata.owner_references)


def _told(ended: Terminated) -> str:
    """Take the last line that a command has said, which is what is wrong and what to do."""
    lines = [line.strip() for line in ended.message.splitlines() if line.strip()]
    if lines:
        return lines[-1]
    return f"it was ended by signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
