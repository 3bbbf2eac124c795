"""What is told of the shared root of a SlurmCluster: whether it is filled, from what, and what is in the way."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from isthmus import names
from isthmus.domain import conditions
from isthmus.domain.clusterparts.rootjobs import DELETE, OVERWRITE, SKIP, SeenRoot
from isthmus.domain.conditions import no, yes
from isthmus.domain.manifests import populate
from isthmus.domain.manifests.populate import Filling
from isthmus.domain.podtrouble import Trouble
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
"""Failed pods from which on somebody should have a look."""


class RootView(msgspec.Struct, frozen=True, kw_only=True):
    """How the root is. `image` is what its files are of, as far as that is known."""

    filled: bool
    image: str = ""
    wanted: str = ""
    reason: str = ""
    text: str = ""
    wrong: str = ""
    missing: str = ""

    def as_condition(self) -> Condition:
        """Tell it as a condition of the cluster."""
        if not self.reason:
            return conditions.unknown(POPULATED, "Skipped", self.text)
        return (yes if self.filled else no)(POPULATED, self.reason, self.text)


def mode_condition(cluster: SlurmCluster) -> Condition:
    """Tell the mode in which the root is, as soperator does: the reason is the mode."""
    mode = cluster.spec.maintenance
    return yes(MODE, mode, _MODES[mode])


def view(cluster: SlurmCluster, wanted: Filling, seen: SeenRoot, trouble: Trouble) -> RootView:
    """See how the root is. `trouble` is what keeps the pods of the Job from doing their work."""
    image = _held(cluster, seen)
    if cluster.spec.maintenance == SKIP:
        return RootView(filled=True, image=image, wanted=wanted.image, text=_MODES[SKIP])
    refresh = seen.refresh
    if refresh is not None and not refresh.complete and image:
        return _refresh_view(refresh, wanted, seen, image, trouble)
    job = seen.populate
    if job is not None and job.failure:
        return _failed_view("populate", job, wanted, seen, image)
    if not image:
        return _filling_view(job, wanted, seen, trouble)
    if image != wanted.image and not image.startswith("volume:"):
        text = (
            f"the shared root is of {image}, and {wanted.image} is wanted: see what would change, and go on, by"
            f" isthmus cluster refresh {cluster.metadata.name} -n {cluster.metadata.namespace}"
            f" (or by maintenance: {OVERWRITE})"
        )
        return RootView(filled=True, image=image, wanted=wanted.image, reason="RefreshDue", text=text)
    done = "; set maintenance to none" if cluster.spec.maintenance == OVERWRITE and refresh else ""
    return RootView(
        filled=True,
        image=image,
        wanted=wanted.image,
        reason="Refreshed" if refresh else "Filled",
        text=f"the shared root is of {image}{done}",
    )


def _filling_view(job: OwnJob | None, wanted: Filling, seen: SeenRoot, trouble: Trouble) -> RootView:
    if job is None:
        text = "the Job that fills the shared root is being made"
        return RootView(filled=False, wanted=wanted.image, reason="Filling", text=text, missing=text)
    ended = _last_end(job, seen.pods)
    if ended and ended.exit_code:
        text = f"filling the shared root is tried again: {_told(ended)}"
        wrong = text if job.status.failed >= _TRIES else ""
        reason = "Failing" if wrong else "Filling"
        return RootView(filled=False, wanted=wanted.image, reason=reason, text=text, wrong=wrong, missing=text)
    if trouble.wrong:
        text = f"the shared root cannot be filled: {trouble.wrong}"
        return RootView(filled=False, wanted=wanted.image, reason="Waiting", text=text, wrong=text)
    text = f"the shared root is being filled from {wanted.image}"
    return RootView(filled=False, wanted=wanted.image, reason="Filling", text=text, missing=text)


def _refresh_view(job: OwnJob, wanted: Filling, seen: SeenRoot, image: str, trouble: Trouble) -> RootView:
    if job.failure:
        return _failed_view("refresh", job, wanted, seen, image)
    to = job.metadata.annotations.get(names.JAIL_IMAGE_ANNOTATION, wanted.image)
    text = f"the shared root is being refreshed from {image} to {to}"
    if trouble.wrong:
        text = f"the shared root cannot be refreshed: {trouble.wrong}"
        return RootView(filled=True, image=image, wanted=wanted.image, reason="Refreshing", text=text, wrong=text)
    return RootView(filled=True, image=image, wanted=wanted.image, reason="Refreshing", text=text)


def _failed_view(
    action: Literal["populate", "refresh"], job: OwnJob, wanted: Filling, seen: SeenRoot, image: str
) -> RootView:
    ended = _last_end(job, seen.pods)
    failure = job.failure
    why = _told(ended) if ended and ended.exit_code else failure.message if failure else ""
    what = "filled" if action == "populate" else "refreshed"
    meta = job.metadata
    again = f"kubectl delete job {meta.name} -n {meta.namespace}"
    text = f"the shared root cannot be {what}: {why.rstrip('.')}. When that is mended: {again}; it is tried anew"
    return RootView(
        filled=bool(image) and action == "refresh",
        image=image,
        wanted=wanted.image,
        reason="Failed" if action == "populate" else "RefreshFailed",
        text=text,
        wrong=text,
    )


def _held(cluster: SlurmCluster, seen: SeenRoot) -> str:
    """Tell what the files in the root are of: what the last Job that is done said, or what we told before."""
    ended = [job for job in (seen.populate, seen.refresh) if job is not None and job.complete]
    ended.sort(key=lambda it: it.status.completion_time.timestamp() if it.status.completion_time else 0.0)
    if not ended:
        return cluster.status.jail_image
    last = ended[-1]
    told = _last_end(last, seen.pods)
    return (
        (told and image_told(told.message))
        or cluster.status.jail_image
        or last.metadata.annotations.get(names.JAIL_IMAGE_ANNOTATION, "unknown")
    )


def image_told(message: str) -> str:
    """Find which image a root has in what the command said in the end."""
    try:
        told = msgspec.json.decode(message)
    except msgspec.DecodeError:
        return ""
    image = told.get("image") if isinstance(told, dict) else None
    return image if isinstance(image, str) else ""


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
