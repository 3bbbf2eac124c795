"""What we read of slurmdbd's answers: the accounting side of Slurm, which also knows jobs that are long gone."""

import msgspec

from isthmus.model.slurm import ExitCode, States


class PastState(msgspec.Struct, frozen=True, gc=False):
    """How a job ended, or how it stands."""

    current: States = ()
    reason: str = ""


class PastTimes(msgspec.Struct, frozen=True, gc=False):
    """When things happened to a job, in seconds since 1970; 0 where they have not."""

    submission: int = 0
    start: int = 0
    end: int = 0
    elapsed: int = 0


class PastJob(msgspec.Struct, frozen=True, gc=False):
    """A job in the accounts."""

    job_id: int
    name: str = ""
    user: str | None = None
    account: str = ""
    cluster: str = ""
    partition: str = ""
    nodes: str = ""
    state: PastState = PastState()
    time: PastTimes = PastTimes()
    exit_code: ExitCode = ExitCode()


class Association(msgspec.Struct, frozen=True, gc=False):
    """Who may use which account on which cluster, and partition where it says so."""

    account: str = ""
    cluster: str = ""
    partition: str | None = None
    user: str = ""
    qos: tuple[str, ...] = ()


class ClusterController(msgspec.Struct, frozen=True, gc=False):
    """Where a cluster's slurmctld is."""

    host: str = ""
    port: int = 0


class Cluster(msgspec.Struct, frozen=True, gc=False):
    """A cluster that keeps its accounts here."""

    name: str
    controller: ClusterController = ClusterController()
    nodes: str = ""
