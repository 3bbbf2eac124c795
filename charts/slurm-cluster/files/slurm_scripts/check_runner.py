#!/usr/bin/env python3
"""Runs the checks of a node when Slurm runs a prolog, an epilog or its health check, and reacts to what they find.

    checks.json, nhc.conf ─► which apply here ─► run each ─► decide ─► drain, undrain, comment, uncomment

A check ends with 0 (passed) or 1 (failed). Everything else is an error of the check: another exit code, a signal, a
time-out, a Python traceback, a program that is missing. Errors are logged, drain nothing, undrain nothing and stop
no job, and so are errors of this program and of its files.

It runs beside slurmd, outside of the shared root, with the standard library alone.

    check_runner.py                  CHECKS_CONTEXT is prolog, epilog or hc_program; 10: no job must start
    check_runner.py --check NAME     run one check without reactions: 0 passed, 1 failed, 2 error
                                     --context CONTEXT: let it see this one
"""

import json
import os
import re
import selectors
import shlex
import signal
import string
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

Context = Literal["prolog", "epilog", "hc_program"]
Outcome = Literal["passed", "failed", "error"]

HERE: Final = Path(__file__).absolute().parent
"""As it is called, and not where a link leads: inside the shared root, only that name exists."""
DETAILS_FD: Final = 3
DEFAULT_TIMEOUT_S: Final = 30.0
BUDGET_S: Final = 50.0
"""For all checks of a run. Slurm kills a health check after 60 s, and a job waits for its prolog."""

MUST_NOT_START: Final = 10
"""prolog.sh makes 1 of it. Python itself ends with 1 when this file is damaged, which must fail no job."""

_SCONTROL_S: Final = 10.0
_KILL_S: Final = 2.0
_POLL_S: Final = 0.05
_MAX_OUTPUT: Final = 32 * 1024
_MAX_DETAILS: Final = 200
_MAX_LOG: Final = 1024 * 1024
_TRACEBACK: Final = b"Traceback (most recent call last):"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SKIP: Final = re.compile(r"(?<![\w-])skip_checks(?![\w-])")


class CheckError(Exception):
    """Something is wrong with a check or its description, and not with the node."""


class Check(NamedTuple):
    """An entry of checks.json."""

    name: str
    command: str
    platforms: tuple[str, ...] = ("any",)
    skip_for_cpu_jobs: bool = False
    skip_for_partial_gpu_jobs: bool = False
    contexts: tuple[str, ...] = ("any",)
    node_states: tuple[str, ...] = ("any",)
    on_fail: str = "none"
    on_ok: str = "none"
    reason_base: str = ""
    reason_append_details: bool = False
    run_in_jail: bool = False
    log: str = ""
    need_env: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT_S

    def wrote(self, text: str) -> bool:
        """Whether a reason or comment in Slurm is this check's, and not a human's or that of a check by a job."""
        rest = text.removeprefix(self.reason_base)
        is_ours = text.startswith(self.reason_base) and rest.startswith((":", " ["))
        return is_ours and text.endswith(tuple(f" [{it}]" for it in get_args(Context)))


class Result(NamedTuple):
    outcome: Outcome
    details: str = ""
    """What the check wrote to file descriptor 3, or why it is an error."""
    output: bytes = b""


class Node(NamedTuple):
    """What slurmctld says about this node."""

    state: frozenset[str]
    reason: str = ""
    comment: str = ""
    gpus: int = 0
    gpu_model: str = ""

    @property
    def is_shut(self) -> bool:
        """Whether somebody has taken it out of service, with a reason that is not to be overwritten."""
        return "DRAIN" in self.state or ("DOWN" in self.state and bool(self.reason))


# --- the list of checks -------------------------------------------------------------------------------------------

_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "contexts": frozenset({"any", "none", *get_args(Context)}),
    "node_states": frozenset({"any", "drain"}),
    "on_fail": frozenset({"none", "drain", "comment"}),
    "on_ok": frozenset({"none", "undrain", "uncomment"}),
}
_PLATFORM: Final = re.compile(r"any|CPU|GPU|[1-9][0-9]*x[\w.-]+")


def read_checks(path: Path, problems: list[str]) -> list[Check]:
    """Read checks.json. An entry that is wrong is left out, and said so; the others count."""
    try:
        entries = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        problems.append(f"{path}: {error}")
        return []
    if not isinstance(entries, list):
        problems.append(f"{path}: it is not a list of checks")
        return []
    found: dict[str, Check] = {}
    for number, entry in enumerate(entries):
        try:
            check = read_check(entry)
        except CheckError as error:
            problems.append(f"{path}, entry {number}: {error}")
            continue
        if check.name in found:
            problems.append(f"{path}, entry {number}: there is a check {check.name} before, which counts")
        found.setdefault(check.name, check)
    return list(found.values())


def read_check(entry: Any) -> Check:
    """Read an entry of checks.json; fields of a later version are ignored."""
    if not isinstance(entry, dict):
        raise CheckError("it is not an object")
    fields = {it: read_field(it, value) for it, value in entry.items() if it in Check._fields and value is not None}
    for field in ("name", "command"):
        if not fields.get(field):
            raise CheckError(f"it has no {field}")
    if not re.fullmatch(r"[\w.-]+", fields["name"]):
        raise CheckError(f"the name {fields['name']!r} has other characters than letters, digits, '.', '_' and '-'")
    fields["reason_base"] = fields.get("reason_base") or f"[node_problem] {fields['name']}"
    check = Check(**fields)
    for field, known in _WORDS.items():
        given = getattr(check, field)
        for word in (given,) if isinstance(given, str) else given:
            if word not in known:
                raise CheckError(f"{field} cannot be {word!r}; use {', '.join(sorted(known))}")
    for platform in check.platforms:
        if not _PLATFORM.fullmatch(platform):
            raise CheckError(f"platforms cannot have {platform!r}; use any, CPU, GPU, 8xGPU or 8xH100")
    return check


def read_field(field: str, value: Any) -> Any:
    """Read a value of the type that the field has by itself; a list may be a single word."""
    default = Check._field_defaults.get(field, "")
    if isinstance(default, tuple):
        words = [value] if isinstance(value, str) else value
        if isinstance(words, list) and all(isinstance(it, str) for it in words):
            return tuple(words)
        raise CheckError(f"{field} is not a list of words")
    if isinstance(default, float):
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return float(value)
        raise CheckError(f"{field} is not a number of seconds")
    if type(value) is type(default):
        return value
    raise CheckError(f"{field} is not {'true or false' if isinstance(default, bool) else 'a text'}")


def read_nhc(path: Path, node: str, problems: list[str]) -> list[Check]:
    """Let checks/nhc.py read a configuration of LBNL's Node Health Check, if there is one."""
    if not path.exists():
        return []
    words = ["python3", "-IS", str(HERE / "checks" / "nhc.py"), "--read", str(path), node]
    ended = execute(words, env={"PATH": _PATH, **os.environ}, timeout=DEFAULT_TIMEOUT_S)
    try:
        read = json.loads(ended.output)
        problems += [f"{path}, {it}" for it in read["problems"]]
        return [read_check(it) for it in read["checks"]]
    except (CheckError, KeyError, TypeError, ValueError) as error:
        problems.append(f"{path}: {error!r} {judge(ended).details}")
        return []


# --- what Slurm knows ---------------------------------------------------------------------------------------------


class Slurm:
    """slurmctld, by scontrol. It is asked when something depends on the answer, and once."""

    def __init__(self, node: str) -> None:
        self.name = node
        self._asked = False
        self._node: Node | None = None

    def node(self) -> Node | None:
        """What slurmctld says about this node; nothing if it does not answer."""
        if not self._asked:
            self._asked = True
            try:
                self._node = read_node(self._scontrol("show", "node", self.name, "--json"))
            except CheckError as error:
                tell(f"slurmctld does not say how this node is: {error}", loud=True)
        return self._node

    def update(self, *settings: str) -> None:
        try:
            self._scontrol("update", f"NodeName={self.name}", *settings)
        except CheckError as error:
            tell(f"{' '.join(settings)}: {error}", loud=True)

    def notify(self, job: str, text: str) -> None:
        """Send a line to the srun or salloc of a job; one of sbatch has nothing yet that could show it."""
        with suppress(CheckError):
            self._scontrol("notify", job, text)

    def _scontrol(self, *words: str) -> str:
        try:
            done = subprocess.run(
                ["scontrol", *words],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SCONTROL_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CheckError(str(error)) from error
        if done.returncode:
            raise CheckError(one_line(done.stderr or done.stdout, limit=_MAX_DETAILS))
        return done.stdout


def read_node(text: str) -> Node:
    try:
        (found,) = json.loads(text)["nodes"]
        state = found["state"]
        gpus, model = read_gres(found.get("gres") or "")
        return Node(
            state=frozenset([state] if isinstance(state, str) else state),
            reason=found.get("reason") or "",
            comment=found.get("comment") or "",
            gpus=gpus,
            gpu_model=model,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckError(f"scontrol printed no node: {error!r}") from error


def read_gres(gres: str) -> tuple[int, str]:
    """How many GPUs a node shall have, and of which type: of `gpu:h100:8(S:0-1),nic:2`, 8 and h100."""
    count, model = 0, ""
    for part in re.split(r",(?![^(]*\))", gres):
        found = re.match(r"gpu(?::([^:()]*[^:()0-9][^:()]*))?(?::([0-9]+))?(?:\(|$)", part)
        if found:
            count += int(found[2] or 1)
            model = found[1] or model
    return count, model


# --- one run ------------------------------------------------------------------------------------------------------


class Run:
    """What is the same for all checks of one run."""

    def __init__(self, context: Context | None, environ: Mapping[str, str]) -> None:
        self.context = context
        self.environ = environ
        self.node_name = environ.get("SLURMD_NODENAME") or environ.get("ISTHMUS_NODE") or os.uname().nodename
        self.slurm = Slurm(self.node_name)
        self.jail = read_jail(environ)
        self._end = time.monotonic() + BUDGET_S

    @property
    def _in_job(self) -> bool:
        return self.context in {"prolog", "epilog"}

    @property
    def job_gpus(self) -> int:
        return len([it for it in self.environ.get("SLURM_JOB_GPUS", "").split(",") if it])

    def why_not(self, check: Check) -> str:
        """Why a check is left out; empty if it is to run. What needs slurmctld comes last."""
        if self.context and not {"any", self.context} & set(check.contexts):
            return f"not in {self.context}"
        if check.run_in_jail and not self.jail:
            return "there is no shared root"
        if self._in_job and check.skip_for_cpu_jobs and not self.job_gpus:
            return "the job has no GPU"
        given = self._environment(check)
        if missing := [it for it in check.need_env if not given.get(it)]:
            return f"{', '.join(missing)} is not set"
        return self._not_on_this_node(check)

    def _not_on_this_node(self, check: Check) -> str:
        for_whole_jobs = self._in_job and check.skip_for_partial_gpu_jobs
        if "any" in check.platforms and "any" in check.node_states and not for_whole_jobs:
            return ""
        node = self.slurm.node()
        if node is None:
            return "slurmctld does not answer"
        if for_whole_jobs and self.job_gpus < node.gpus:
            return "the job has not all GPUs"
        if "any" not in check.node_states and "DRAIN" not in node.state:
            return "the node is not drained"
        return "" if any(is_platform(it, node) for it in check.platforms) else "another platform"

    def run(self, check: Check) -> Result:
        left = self._end - time.monotonic()
        if left <= 0:
            return Result("error", f"no time left: the checks before took {BUDGET_S:g} s")
        words = ["/bin/sh", "-c", check.command]
        if check.run_in_jail:
            inside = f"cd {shlex.quote(str(HERE))} 2> /dev/null || cd /; {check.command}"
            words = [*self.jail, "/bin/sh", "-c", inside]
        began = time.monotonic()
        result = judge(execute(words, env=self._environment(check), timeout=min(check.timeout, left)))
        self._log(check, result, seconds=time.monotonic() - began)
        return result

    def _environment(self, check: Check) -> dict[str, str]:
        given = {
            "PATH": _PATH,
            **self.environ,
            "CHECKS_CONTEXT": self.context or self.environ.get("CHECKS_CONTEXT") or "check",
            "CHECKS_NAME": check.name,
            "CHECKS_NODE": self.node_name,
            "CHECKS_JAIL": self.jail[1].removeprefix("root=") if self.jail else "",
        }
        # A prolog does not ask for the state: a job of a thousand nodes would ask a thousand times.
        if (self.context in {None, "hc_program"} or "any" not in check.platforms) and (node := self.slurm.node()):
            given["CHECKS_NODE_STATE"] = ",".join(sorted(node.state))
            given["CHECKS_GPUS"] = str(node.gpus)
        return given

    def _log(self, check: Check, result: Result, *, seconds: float) -> None:
        if result.outcome != "passed":
            tell(
                f"{check.name}: {result.outcome}: {result.details or 'it does not say why'} ({seconds:.1f} s)",
                loud=result.outcome == "error",
            )
        if check.log and self.context:
            name = string.Template(check.log).safe_substitute(
                worker=self.node_name,
                node=self.node_name,
                name=check.name,
                context=self.context,
                job_id=self.environ.get("SLURM_JOB_ID", "0"),
            )
            head = f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {result.outcome} {result.details}\n"
            append(outputs() / name, head.encode(errors="replace") + result.output)


def is_platform(platform: str, node: Node) -> bool:
    if platform in {"any", "CPU", "GPU"}:
        return {"any": True, "CPU": not node.gpus, "GPU": node.gpus > 0}[platform]
    count, _, model = platform.partition("x")
    return node.gpus == int(count) and (model == "GPU" or model.lower() in gpu_models(node))


def gpu_models(node: Node) -> str:
    """Types of the GPUs: as Slurm was told, else as the driver calls them."""
    if node.gpu_model:
        return node.gpu_model.lower()
    with suppress(OSError, subprocess.TimeoutExpired):
        words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=10).stdout.lower()
    return ""


def read_jail(environ: Mapping[str, str]) -> list[str]:
    """By which words a program is run inside the shared root; none if there is no shared root.

    What jobs see inside is told by plugstack.conf. So a check sees the same.
    """
    places = [Path(environ["SLURM_CONF"]).parent] if environ.get("SLURM_CONF") else []
    for place in (*places, Path("/run/slurm/conf"), Path("/etc/slurm")):
        with suppress(OSError):
            for line in (place / "plugstack.conf").read_text().splitlines():
                _, plugin, *options = [*line.split(), "", ""]
                if plugin.endswith("isthmus_jail.so"):
                    options = [it for it in options if it]
                    # The root comes first, where others look for it.
                    return ["isthmus-enter", *sorted(options, key=lambda it: not it.startswith("root=")), "--"]
    root = environ.get("CHECKS_JAIL") or "/mnt/jail"
    return ["chroot", root] if Path(root, "usr").is_dir() else []


# --- running a program --------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    code: int | None
    """Nothing if it did not end in time, or did not start."""
    output: bytes
    details: bytes
    trouble: str = ""


def reserve_details_fd() -> None:
    """Keep the number for the pipe of details: whatever else is opened gets another one."""
    null = os.open(os.devnull, os.O_WRONLY)
    if null != DETAILS_FD:
        os.dup2(null, DETAILS_FD)
        os.close(null)


def execute(words: Sequence[str], *, env: Mapping[str, str], timeout: float) -> Ended:
    """Run a program in a process group of its own, for so long at most, and keep the beginning of what it prints.

    One that cannot even be killed, as it waits for a dead file server, is left behind.
    """
    output, output_end = os.pipe()
    details, details_end = os.pipe()
    os.dup2(details_end, DETAILS_FD)
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output_end,
            stderr=output_end,
            pass_fds=(DETAILS_FD,),
            start_new_session=True,
            cwd=HERE,
            env=dict(env),
        )
    except OSError as error:
        os.close(output)
        os.close(details)
        return Ended(None, b"", b"", str(error))
    finally:
        os.close(output_end)
        os.close(details_end)
        reserve_details_fd()
    kept = {output: bytearray(), details: bytearray()}
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for end in kept:
            os.set_blocking(end, False)
            selector.register(end, selectors.EVENT_READ)
        while child.poll() is None and (left := deadline - time.monotonic()) > 0:
            if not selector.get_map():
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=left)
                continue
            # Not until the pipes end: what it left in the background may hold them open.
            for key, _ in selector.select(min(left, _POLL_S)):
                if _take(key.fd, kept[key.fd]):
                    selector.unregister(key.fd)
    code = child.poll()
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=_KILL_S)
    for end, text in kept.items():
        while not _take(end, text, until_empty=True):
            pass
        os.close(end)
    trouble = "" if code is not None else f"it was killed, as it did not end within {timeout:.3g} s"
    return Ended(code, bytes(kept[output]), bytes(kept[details]), trouble)


def _take(end: int, kept: bytearray, *, until_empty: bool = False) -> bool:
    """Read what a pipe holds; true when it ended or, if so asked, holds nothing more or too much."""
    try:
        read = os.read(end, 65536)
    except BlockingIOError:
        return until_empty
    full = len(kept) >= _MAX_OUTPUT
    kept += read[: max(0, _MAX_OUTPUT - len(kept))]
    return not read or (until_empty and full)


def judge(ended: Ended) -> Result:
    details = one_line(ended.details.decode(errors="replace"), limit=_MAX_DETAILS)
    if ended.code is None:
        return Result("error", ended.trouble, ended.output)
    if ended.code == 0:
        return Result("passed", details, ended.output)
    if ended.code == 1 and _TRACEBACK not in ended.output:
        return Result("failed", details, ended.output)
    last = one_line((ended.output.strip().splitlines() or [b""])[-1].decode(errors="replace"), limit=_MAX_DETAILS)
    how = f"it ended with {ended.code}" if ended.code > 0 else f"signal {-ended.code} ended it"
    if ended.code == 1:
        how = "it broke off"
    return Result("error", f"{how}: {details or last}".rstrip(": "), ended.output)


# --- what follows -------------------------------------------------------------------------------------------------


def reason(check: Check, result: Result, context: Context) -> str:
    details = f": {result.details}" if check.reason_append_details and result.details else ""
    return f"{check.reason_base}{details} [{context}]"


def may_react(check: Check, result: Result, context: Context) -> bool:
    """Whether it depends on the node what follows; if not, slurmctld need not be asked."""
    if result.outcome == "failed":
        return check.on_fail != "none"
    return result.outcome == "passed" and check.on_ok != "none" and context == "hc_program"


def decide(results: Sequence[tuple[Check, Result]], node: Node, context: Context) -> Iterator[tuple[str, ...]]:
    """What is changed in Slurm, as settings of the node. What people wrote there stays."""
    failed = [(check, it) for check, it in results if it.outcome == "failed"]
    passed = [check for check, it in results if it.outcome == "passed" and context == "hc_program"]
    ours_is_over = any(it.on_ok == "undrain" and it.wrote(node.reason) for it in passed)
    drain = next((reason(check, it, context) for check, it in failed if check.on_fail == "drain"), None)
    if drain and (not node.is_shut or ("DRAIN" in node.state and ours_is_over)):
        yield ("State=DRAIN", f"Reason={drain}")
    elif not drain and ours_is_over and "DRAIN" in node.state:
        yield ("State=UNDRAIN",)
    comment = next(((check, it) for check, it in failed if check.on_fail == "comment"), None)
    over = any(it.on_ok == "uncomment" and it.wrote(node.comment) for it in passed)
    if comment and (over or not node.comment):
        yield (f"Comment={reason(*comment, context)}",)
    elif over:
        yield ("Comment=",)


def run_all(context: Context, environ: Mapping[str, str]) -> int:
    """Run every check that applies, and react."""
    if _SKIP.search(environ.get("SLURM_JOB_COMMENT", "")):
        tell("the comment of the job says skip_checks: nothing is checked")
        return 0
    run = Run(context, environ)
    results: list[tuple[Check, Result]] = []
    for check in all_checks(run.node_name, environ):
        if run.why_not(check):
            continue
        results.append((check, run.run(check)))
        # A job that must not start waits for no more; after one, what cleans up has its turn whatever was found.
        if results[-1][1].outcome == "failed" and check.on_fail == "drain" and context == "prolog":
            break
    if any(may_react(*it, context) for it in results) and (node := run.slurm.node()):
        for settings in decide(results, node, context):
            tell(" ".join(settings))
            run.slurm.update(*settings)
    drains = [(check, it) for check, it in results if it.outcome == "failed" and check.on_fail == "drain"]
    if context != "prolog" or not drains:
        return 0
    told = f"{run.node_name} failed a check before the job: {reason(*drains[0], context)}"
    sys.stdout.write(f"{told}\n")
    if job := environ.get("SLURM_JOB_ID"):
        run.slurm.notify(job, told)
    return MUST_NOT_START


def run_one(name: str, environ: Mapping[str, str]) -> int:
    """Run one check, without any reaction: who tests a node decides what follows."""
    run = Run(None, environ)
    check = next((it for it in all_checks(run.node_name, environ) if it.name == name), None)
    why = "there is no such check" if check is None else run.why_not(check)
    result = Result("error", f"not run: {why}") if check is None or why else run.run(check)
    sys.stdout.buffer.write(result.output)
    sys.stdout.write(f"{name}: {result.outcome}{': ' if result.details else ''}{result.details}\n")
    return {"passed": 0, "failed": 1, "error": 2}[result.outcome]


def all_checks(node: str, environ: Mapping[str, str]) -> list[Check]:
    config = Path(environ.get("CHECKS_CONFIG") or HERE / "checks.json")
    problems: list[str] = []
    found = [*read_checks(config, problems), *read_nhc(config.parent / "nhc.conf", node, problems)]
    for problem in problems:
        tell(problem, loud=True)
    # Those of the node itself come first: if the shared root hangs, they have run by then.
    return sorted(found, key=lambda it: it.run_in_jail)


# --- telling ------------------------------------------------------------------------------------------------------


def one_line(text: str, *, limit: int) -> str:
    line = " ".join("".join(it if it.isprintable() else " " for it in text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def outputs() -> Path:
    return Path(os.environ.get("CHECKS_OUTPUTS_BASE_DIR") or "/var/log/slurm_scripts")


def append(path: Path, text: bytes) -> None:
    """Add to a log, of which there are two of a bounded size at most."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_LOG:
            path.replace(f"{path}.1")
        with path.open("ab") as log:
            log.write(text if text.endswith(b"\n") else text + b"\n")


def tell(text: str, *, loud: bool = False) -> None:
    """Log a line; a loud one goes to the log of the pod, too, since nobody looks for a check that is broken."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} check_runner: {text}\n"
    with suppress(OSError):
        sys.stderr.write(line)
    append(outputs() / "check_runner.log", line.encode(errors="replace"))
    if loud:
        with suppress(OSError):
            end = os.open("/proc/1/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                os.write(end, line.encode(errors="replace"))
            finally:
                os.close(end)


def main(words: Sequence[str]) -> int:
    os.environ.setdefault("PATH", _PATH)
    reserve_details_fd()
    environ = dict(os.environ)
    match words:
        case ["--check", name]:
            return run_one(name, environ)
        case ["--check", name, "--context", seen]:
            return run_one(name, {**environ, "CHECKS_CONTEXT": seen})
    context = environ.get("CHECKS_CONTEXT", "")
    for known in get_args(Context):
        if context == known and not words:
            return run_all(known, environ)
    sys.stderr.write(
        "usage: CHECKS_CONTEXT=prolog|epilog|hc_program check_runner.py [--check NAME [--context CONTEXT]]\n"
    )
    return 2 if words else 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - whatever it is: Slurm would drain the node for it
        tell(f"unexpected error, nothing is done: {error!r}", loud=True)
        code = 2 if sys.argv[1:] else 0
    sys.exit(code)
