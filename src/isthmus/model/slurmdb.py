"""What we read of slurmdbd's answers: the accounting side of Slurm, which also knows jobs that are long gone."""

import msgspec

from isthmus.model.slurm import NOTHING, ExitCode, Number, States


class PastState(msgspec.Struct, frozen=True, gc=False):
    """How a job ended, or how it stands."""

    current: States = ()
    reason: str = ""


class PastTimes(msgspec.Struct, frozen=True, gc=False):
    """When things happened to a job, in seconds since 1970; 0 where they have not."""

    submission: int = 0
    eligible: int = 0
    start: int = 0
    end: int = 0
    elapsed: int = 0
    """For how many seconds it ran, without the time that it was suspended."""


class PastTres(msgspec.Struct, frozen=True, gc=False):
    """So much of something that Slurm tracks: `cpu`, or `gres` with the name `gpu`."""

    type: str = ""
    name: str | None = None
    count: int = 0


class PastResources(msgspec.Struct, frozen=True, gc=False):
    """What a job asked for, and what it was given; memory is in megabytes."""

    requested: tuple[PastTres, ...] = ()
    allocated: tuple[PastTres, ...] = ()


class CpuTime(msgspec.Struct, frozen=True, gc=False):
    """System and user time."""

    seconds: int = 0
    microseconds: int = 0


class StepTimes(msgspec.Struct, frozen=True, gc=False):
    total: CpuTime = CpuTime()


class StepUsage(msgspec.Struct, frozen=True, gc=False):
    """What the tasks of a step used; `total` is the sum over all of them, with memory in bytes."""

    total: tuple[PastTres, ...] = ()


class StepResources(msgspec.Struct, frozen=True, gc=False):
    requested: StepUsage = StepUsage()
    """Slurm writes here what was used, and into `consumed` what was written."""


class PastStep(msgspec.Struct, frozen=True, gc=False):
    time: StepTimes = StepTimes()
    tres: StepResources = StepResources()


class PastHet(msgspec.Struct, frozen=True, gc=False):
    """Of which heterogeneous job a job is a component."""

    job_id: int = 0
    job_offset: Number = NOTHING


class PastComment(msgspec.Struct, frozen=True, gc=False):
    administrator: str | None = None


class PastArray(msgspec.Struct, frozen=True, gc=False):
    """Of which array a job is a task."""

    job_id: int = 0
    task_id: Number = NOTHING


class PastJob(msgspec.Struct, frozen=True, gc=False):
    """A job in the accounts."""

    job_id: int
    name: str = ""
    user: str | None = None
    account: str = ""
    cluster: str = ""
    partition: str = ""
    qos: str = ""
    nodes: str = ""
    array: PastArray = PastArray()
    het: PastHet = PastHet()
    comment: PastComment = PastComment()
    restarts: int = msgspec.field(name="restart_cnt", default=0)
    state: PastState = PastState()
    time: PastTimes = PastTimes()
    tres: PastResources = PastResources()
    stdout: str = ""
    stderr: str = ""
    stdout_expanded: str = ""
    stderr_expanded: str = ""
    exit_code: ExitCode = ExitCode()
    steps: tuple[PastStep, ...] = ()


class GroupJobs(msgspec.Struct, frozen=True, gc=False):
    """How many jobs all users of an account together may have running, and submitted."""

    count: Number = NOTHING
    submitted: Number = NOTHING


class MaxJobs(msgspec.Struct, frozen=True, gc=False):
    per: GroupJobs = GroupJobs()


class MaxTres(msgspec.Struct, frozen=True, gc=False):
    """What all users of an account together may have."""

    total: tuple[PastTres, ...] = ()


class Maximums(msgspec.Struct, frozen=True, gc=False):
    """The limits of an association."""

    jobs: MaxJobs = MaxJobs()
    tres: MaxTres = MaxTres()


class Association(msgspec.Struct, frozen=True, gc=False):
    """Who may use which account on which cluster, and partition where it says so."""

    account: str = ""
    cluster: str = ""
    partition: str | None = None
    user: str = ""
    max: Maximums = Maximums()


class Cluster(msgspec.Struct, frozen=True, gc=False):
    """A cluster that keeps its accounts here."""

    name: str
