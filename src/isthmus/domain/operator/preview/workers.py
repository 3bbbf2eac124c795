"""What a change does to workers: which go, which are made anew, and whose jobs are waited for."""

from collections.abc import Iterable, Iterator

from isthmus.domain.languages.prose import some
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.nodeset.identity import mode_of, ordinal_of, slurm_name
from isthmus.domain.operator.nodeset.patience import jobs_by_node
from isthmus.domain.operator.nodeset.rollout import max_unavailable
from isthmus.domain.operator.nodeset.victims import victims
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.domain.operator.preview.clusterobjects import ClusterObjects
from isthmus.domain.operator.preview.effect import Effect, Live, NodeJobs, pairs
from isthmus.model.meta import condition
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import Job
from isthmus.names import REVISION_LABEL


def workers(before: ClusterObjects, after: ClusterObjects, live: Live) -> Iterator[Effect]:
    for name, old, new in pairs(before.nodesets, after.nodesets):
        if new is None:
            pods = _views(name, live)
            what = f"workers {name} are removed, each once it has no jobs"
            yield Effect(mark="drain", what=what, nodes=_jobs(pods, live))
        elif old is None:
            yield Effect(mark="more", what=f"workers {name} are created: {new.spec.replicas}")
        else:
            revisions = [worker.revision(it, of.controller, {}) for it, of in ((old, before), (new, after))]
            yield from _changed(old, new, live, anew=revisions[0] != revisions[1])


def _changed(old: NodeSet, new: NodeSet, live: Live, *, anew: bool) -> Iterator[Effect]:
    name = new.metadata.name
    pods = _views(name, live)
    going: frozenset[str] = frozenset()
    if new.elastic:
        if old.spec.replicas != new.spec.replicas:
            what = f"workers {name}: Slurm knows {new.spec.replicas} nodes instead of {old.spec.replicas}"
            yield Effect(mark="note", what=f"{what}, and says which of them are on")
    elif new.spec.scaling_mode == "StatefulSet" and new.spec.replicas != old.spec.replicas:
        going = frozenset(_victims(new, pods, live))
        chosen = [it for it in pods if it.name in going]
        yield _scaled(name, old.spec.replicas, new.spec.replicas, chosen, live)
    staying = [it for it in pods if it.name not in going]
    if anew:
        yield _anew(name, new, staying, live)


def _scaled(name: str, old: int, new: int, going: list[PodView], live: Live) -> Effect:
    what = f"workers {name}: {old} → {new}"
    if new > old:
        return Effect(mark="more", what=what)
    if not going:
        return Effect(mark="drain", what=f"{what}; which ones are removed is decided once Slurm answers")
    several = len(going) > 1
    verb, owner = ("are", "they have") if several else ("is", "it has")
    what += f"; {some(it.name for it in going)} {verb} removed once {owner} no jobs"
    return Effect(mark="drain", what=what, nodes=_jobs(going, live))


def _anew(name: str, new: NodeSet, pods: list[PodView], live: Live) -> Effect:
    what = (
        f"{len(pods)} worker{'s' if len(pods) != 1 else ''} of {name} {'are' if len(pods) != 1 else 'is'} recreated"
    )
    strategy = new.spec.update_strategy
    match strategy.type:
        case "OnDelete":
            return Effect(mark="note", what=f"{what} only when they are deleted (updateStrategy OnDelete)")
        case "ScheduledUpdate":
            at = strategy.scheduled_update.start_time if strategy.scheduled_update else None
            when = f" at {at.isoformat(timespec='minutes')}" if at else ""
            return Effect(mark="drain", what=f"{what} in the maintenance{when}", nodes=_jobs(pods, live))
    limit = max_unavailable(strategy.rolling_update.max_unavailable, new.spec.replicas or len(pods))
    what += f", at most {limit} at a time, each once it has no jobs"
    return Effect(mark="drain", what=f"{what}{_patience(new)}", nodes=_jobs(pods, live))


def _patience(nodeset: NodeSet) -> str:
    drain = nodeset.spec.drain
    if not drain.timeout or drain.on_timeout == "Wait":
        return ""
    done = {"Requeue": "go back into the queue", "Cancel": "are ended"}[drain.on_timeout]
    return f"; jobs that are not over {drain.timeout} later {done}"


def _victims(nodeset: NodeSet, pods: list[PodView], live: Live) -> tuple[str, ...]:
    """Whom the operator would choose at this moment."""
    view = View(
        nodeset=nodeset,
        pods=tuple(pods),
        now=live.now,
        hash="",
        desired=nodeset.spec.replicas,
        kube_nodes={},
        slurm_in_touch=live.nodes is not None,
        slurm_nodes=live.nodes or {},
    )
    return victims(view)


def _views(nodeset: str, live: Live) -> list[PodView]:
    found = []
    for pod in live.of(worker.COMPONENT, nodeset):
        ready = condition(pod.status.conditions, "Ready")
        is_ready = ready is not None and ready.status == "True"
        name, mode = slurm_name(pod), mode_of(pod)
        found.append(
            PodView(
                pod=pod,
                mode=mode,
                slurm_name=name,
                ordinal=ordinal_of(nodeset, pod) if mode == "StatefulSet" else None,
                hash=pod.metadata.labels.get(REVISION_LABEL, ""),
                ready=is_ready,
                available=is_ready,
                slurm=(live.nodes or {}).get(name),
            )
        )
    return sorted(found, key=lambda it: (it.ordinal is None, it.ordinal or 0, it.name))


def _jobs(pods: Iterable[PodView], live: Live) -> tuple[NodeJobs, ...]:
    by_node = jobs_by_node(live.jobs)
    return tuple(_node_jobs(it.name, by_node.get(it.slurm_name, ())) for it in pods)


def _node_jobs(name: str, jobs: Iterable[Job]) -> NodeJobs:
    mine = list(jobs)
    ends = [_end(it) for it in mine]
    return NodeJobs(
        name,
        tuple(it.job_id for it in mine),
        tuple(dict.fromkeys(it.user_name or "" for it in mine)),
        max((it for it in ends if it is not None), default=None) if None not in ends else None,
    )


def _end(job: Job) -> float | None:
    limit, began = job.time_limit.value, job.start_time.value
    if job.time_limit.infinite or limit is None or not began:
        return None
    return began + limit * 60
