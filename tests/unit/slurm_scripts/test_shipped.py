"""Every shipped check finds what it is for, and passes where that is not there."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.unit.slurm_scripts.node import Node


def outcome(node: Node, command: str, **environ: str) -> tuple[int, str]:
    """Run a shipped check by itself: its code, and its details."""
    node.checks({"name": "it", "command": command})
    done = node.check("it", **environ)
    return done.returncode, done.stdout.strip().splitlines()[-1].partition("it: ")[2]


def passes(node: Node, command: str, **environ: str) -> bool:
    code, told = outcome(node, command, **environ)
    assert (code, told) in {(0, "passed"), (1, told)}, told
    return code == 0


def write(root: Path, **files: str) -> None:
    """Write files below a root; `__` in a name stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# --- disks and mounts --------------------------------------------------------------------------------------------


def test_a_full_disk(node: Node) -> None:
    node.program("df", "#!/bin/sh\necho Filesystem Size Used Free Use% On\necho /dev/sda 100 93 7 ${USED}% /\n")
    assert passes(node, "checks/disk_full.sh 95 /", USED="94")
    told = "failed: / has 95 % of its bytes in use, the limit is 95 %"
    assert outcome(node, "checks/disk_full.sh 95 /", USED="95") == (1, told)
    assert passes(node, "checks/disk_full.sh 95 /", USED="-"), "some file systems count no inodes"
    assert passes(node, "checks/disk_full.sh 95 /no-such-path", USED="99")
    assert outcome(node, "checks/disk_full.sh much /", USED="9")[0] == 2


def test_the_real_disk_is_understood(node: Node) -> None:
    assert passes(node, "checks/disk_full.sh 101 / /tmp")
    assert outcome(node, "checks/disk_full.sh 0 /")[0] == 2


def mount(path: str, *, here: str = "rw", there: str = "rw", kind: str = "ext4") -> str:
    return f"36 35 8:1 / {path} {here},relatime shared:1 - {kind} /dev/sda1 {there},errors=remount-ro\n"


def test_a_file_system_that_became_read_only(node: Node) -> None:
    def found(*lines: str) -> tuple[int, str]:
        write(node.directory, root__proc__self__mountinfo="".join(lines))
        return outcome(node, "python3 -IS checks/mounts.py 5", CHECKS_ROOT=str(node.directory / "root"))

    good = mount("/")
    assert found(good) == (0, "passed")
    assert found(good, mount("/usr", here="ro", there="ro")) == (0, "passed"), "somebody wanted it so"
    assert found(good, mount("/cd", there="ro", kind="iso9660")) == (0, "passed")
    broken = mount("/data", there="ro")
    assert found(good, broken) == (1, "failed: /data (ext4) became read-only")
    assert found(good, broken, mount("/data")) == (0, "passed"), "another one is mounted over it"
    told = "failed: /a disk (ext4) became read-only, and 1 more"
    assert found(mount(r"/a\040disk", there="ro"), mount("/b", there="ro")) == (1, told)


# --- memory, processes, clock ------------------------------------------------------------------------------------


def test_memory_in_use_without_jobs(node: Node) -> None:
    def found(state: str, **environ: str) -> bool:
        given = {"CGROUP": str(node.directory / "cgroup"), "MEMINFO": str(node.directory / "meminfo"), **environ}
        node.is_said_to_be(*state.split(","))
        return passes(node, "checks/idle_memory.sh 50", **given)

    write(node.directory, meminfo="MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n")
    assert not found("IDLE")
    assert not found("IDLE,DRAIN")
    assert found("MIXED")
    assert found("ALLOCATED")
    assert found("IDLE,COMPLETING")
    stat = "anon 400\ninactive_file 300\nactive_file 100\n"
    (node.directory / "cgroup").mkdir()
    (node.directory / "cgroup" / "memory.max").write_text("1000\n")
    (node.directory / "cgroup" / "memory.current").write_text("800\n")
    (node.directory / "cgroup" / "memory.stat").write_text(stat)
    assert found("IDLE"), "in a pod with a limit, its own memory counts, and caches of files do not"
    (node.directory / "cgroup" / "memory.current").write_text("950\n")
    assert not found("IDLE")


SHM = """\
       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid
         0          1  1600            2000000000     9     9      {0}  2001  2001  2001  2001
         0          2  1600            9000000000     9     9      0     0     0     0     0
"""


def test_memory_that_jobs_left(node: Node) -> None:
    root = {"CHECKS_ROOT": str(node.directory / "root")}
    write(node.directory, root__proc__sysvipc__shm=SHM.format(0))
    told = "failed: jobs left 1907 MiB in memory, most of it in System V shared memory; the limit is 1024 MiB"
    assert outcome(node, "python3 -IS checks/leftovers.py 1024", **root) == (1, told)
    assert passes(node, "python3 -IS checks/leftovers.py 4096", **root), "root's segment is no leftover"
    node.is_said_to_be("MIXED")
    assert passes(node, "python3 -IS checks/leftovers.py 1024", **root)
    node.is_said_to_be("IDLE")
    write(node.directory, root__proc__sysvipc__shm=SHM.format(1))
    assert passes(node, "python3 -IS checks/leftovers.py 1024", **root), "somebody is attached"


def process(root: Path, pid: int, state: str, *, switches: int = 1) -> None:
    fields = " ".join(["1"] * 18 + [str(pid * 100)] + ["0"] * 20)
    write(
        root,
        **{
            f"proc__{pid}__stat": f"{pid} (a (b) c) {state} {fields}\n",
            f"proc__{pid}__status": f"Name:\ta (b) c\nvoluntary_ctxt_switches:\t{switches}\n"
            "nonvoluntary_ctxt_switches:\t0\n",
        },
    )


def test_a_process_that_waits_in_the_kernel_and_never_runs(node: Node) -> None:
    root = node.directory / "root"

    def found(command: str = "python3 -IS checks/processes.py 0.1 500") -> tuple[int, str]:
        return outcome(node, command, CHECKS_ROOT=str(root))

    process(root, 7, "D")
    process(root, 8, "S")
    assert found() == (0, "passed"), "it may just be at it"
    time.sleep(0.2)
    process(root, 7, "D", switches=2)
    assert found() == (0, "passed"), "it ran in between"
    time.sleep(0.2)
    assert found() == (1, "failed: process 7 (a (b) c) is stuck in the kernel (state D)")
    process(root, 7, "S", switches=3)
    assert found() == (0, "passed")
    for pid in (11, 12, 13):
        process(root, pid, "Z")
    assert found("python3 -IS checks/processes.py 60 3") == (0, "passed")
    told = "failed: there are 3 zombies, the limit is 2"
    assert found("python3 -IS checks/processes.py 60 2") == (1, told)


def test_a_clock_that_is_wrong(node: Node) -> None:
    def found(off: float | None) -> tuple[int, str]:
        said = "exit 1" if off is None else f'echo "sdiag output at Wed Nov 18 ($(($(date +%s) - {off})))"'
        node.program("sdiag", f"#!/bin/sh\n{said}\n")
        return outcome(node, "python3 -IS checks/clock.py 20")

    assert found(None)[0] == 2, "without slurmctld nothing is known"
    assert found(0) == (0, "passed")
    assert found(-10) == (0, "passed")
    code, told = found(100)
    assert code == 1
    assert told.startswith(("failed: the clock is +99 s", "failed: the clock is +100 s"))
    assert found(-100)[0] == 1
    assert found(None)[0] == 2, "it did not jump"
    (node.directory / "state" / "clock.json").write_text("1000.0")
    code, told = found(None)
    assert code == 1
    assert "the clock jumped by" in told


# --- GPUs and networks -------------------------------------------------------------------------------------------


def smi(node: Node, *, count: int = 8, ecc: str = "0", pending: str = "No", failure: str = "No") -> None:
    node.program(
        "nvidia-smi",
        f"""#!/bin/sh
case $1 in
    -L) i=0; while [ $i -lt {count} ]; do echo "GPU $i: NVIDIA H100 (UUID: GPU-$i)"; i=$((i + 1)); done ;;
    --query-gpu=*) printf '0, 0\\n1, {ecc}\\n' ;;
    --query-remapped-rows=*) echo '00000000:19:00.0, {pending}, {failure}' ;;
esac
""",
    )


@pytest.fixture
def gpu_node(node: Node) -> Node:
    node.is_said_to_be("IDLE", gres="gpu:h100:8")
    node.program("dmesg", "#!/bin/sh\n")
    smi(node)
    return node


def test_gpus_that_are_missing(gpu_node: Node) -> None:
    count = "python3 -IS checks/gpu.py count"
    assert passes(gpu_node, count)
    smi(gpu_node, count=7)
    assert outcome(gpu_node, count) == (1, "failed: 7 of 8 GPUs are there")
    gpu_node.program(
        "nvidia-smi", "#!/bin/sh\necho 'Unable to determine the device handle: GPU is lost'; exit 15\n"
    )
    told = "failed: nvidia-smi finds no GPU: Unable to determine the device handle: GPU is lost"
    assert outcome(gpu_node, count) == (1, told)
    gpu_node.program("nvidia-smi", "#!/bin/sh\nexec no-such-library\n")
    assert outcome(gpu_node, count)[0] == 2, "a broken nvidia-smi proves nothing"


def test_nodes_without_gpus_or_tools_pass(node: Node) -> None:
    assert passes(node, "python3 -IS checks/gpu.py count")
    node.is_said_to_be("IDLE", gres="gpu:8")
    for what in ("count", "ecc", "xid"):
        node.program("dmesg", "#!/bin/sh\nexit 1\n")
        assert passes(node, f"python3 -IS checks/gpu.py {what}")


def test_memory_errors_of_gpus(gpu_node: Node) -> None:
    ecc = "python3 -IS checks/gpu.py ecc"
    assert passes(gpu_node, ecc)
    smi(gpu_node, ecc="[N/A]")
    assert passes(gpu_node, ecc)
    smi(gpu_node, ecc="3")
    assert outcome(gpu_node, ecc) == (1, "failed: GPU 1 has 3 uncorrected memory errors")
    smi(gpu_node, failure="Yes")
    assert outcome(gpu_node, ecc) == (1, "failed: GPU 00000000:19:00.0 has no spare memory rows left")
    smi(gpu_node, pending="Yes")
    assert outcome(gpu_node, ecc) == (1, "failed: GPU 00000000:19:00.0 needs a reset to replace memory rows")


def dcgmi(node: Node, values: str) -> None:
    node.program("dcgmi", f"#!/bin/sh\nprintf '#Entity   FIELD\\nID\\n{values}'\n")


def test_errors_of_gpus_that_dcgm_or_the_kernel_reports(gpu_node: Node) -> None:
    xid = "python3 -IS checks/gpu.py xid"
    assert passes(gpu_node, xid)
    dcgmi(gpu_node, r"GPU 0     0\nGPU 1     31\n")
    assert passes(gpu_node, xid), "31 is a program's fault"
    dcgmi(gpu_node, r"GPU 0     0\nGPU 1     79\n")
    assert outcome(gpu_node, xid) == (1, "failed: GPU 1 reported XID 79")
    (gpu_node.programs / "dcgmi").unlink()
    write(gpu_node.directory, root__proc__uptime="10000.00 1.0\n")
    root = {"CHECKS_ROOT": str(gpu_node.directory / "root")}
    line = "#!/bin/sh\necho '[ {0}] NVRM: Xid (PCI:0000:19:00): {1}, pid=1, GPU has fallen off the bus.'\n"
    gpu_node.program("dmesg", line.format("9000.5", 79))
    assert outcome(gpu_node, xid, **root) == (1, "failed: GPU 0000:19:00 reported XID 79")
    gpu_node.program("dmesg", line.format("900.5", 79))
    assert passes(gpu_node, xid, **root), "it is hours ago, and the GPU may have been reset since"
    gpu_node.program("dmesg", line.format("9000.5", 13))
    assert passes(gpu_node, xid, **root)


def port(root: Path, name: str, state: str, physical: str) -> None:
    key = f"sys__class__infiniband__{name}__ports__1__"
    write(root, **{f"{key}state": f"{state}\n", f"{key}phys_state": f"{physical}\n"})


def test_infiniband_links(node: Node) -> None:
    root = node.directory / "root"

    def found(command: str = "python3 -IS checks/infiniband.py") -> tuple[int, str]:
        return outcome(node, command, CHECKS_ROOT=str(root))

    assert found() == (0, "passed"), "there is none"
    port(root, "mlx5_0", "4: ACTIVE", "5: LinkUp")
    port(root, "mlx5_1", "1: DOWN", "3: Disabled")
    assert found() == (0, "passed"), "it may have no cable"
    assert found("python3 -IS checks/infiniband.py 2") == (1, "failed: 1 of 2 ports are active")
    port(root, "mlx5_0", "1: DOWN", "2: Polling")
    assert found() == (1, "failed: mlx5_0/1 is DOWN")
    port(root, "mlx5_0", "4: ACTIVE", "5: LinkUp")
    port(root, "mlx5_1", "2: INIT", "5: LinkUp")
    assert found() == (1, "failed: mlx5_1/1 is INIT"), "no subnet manager cares for it"


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes no connection, as behind a network that swallows everything."""
    with ExitStack() as stack:
        end = stack.enter_context(socket.socket())
        end.bind(("127.0.0.1", 0))
        end.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.settimeout(0)
            client.connect_ex(end.getsockname())
        yield f"127.0.0.1:{end.getsockname()[1]}"


def test_a_network_without_neighbours(node: Node) -> None:
    network = "python3 -IS checks/network.py 0.3"
    with socket.socket() as closed, deaf() as one, deaf() as other:
        closed.bind(("127.0.0.1", 0))
        refuses = f"127.0.0.1:{closed.getsockname()[1]}"
        assert passes(node, f"{network} {one} {refuses}"), "the network works where somebody says no"
        assert passes(node, f"{network} {one}"), "one that is silent may be at fault itself"
        told = f"failed: none of {one}, {other} answers within 0.3 s"
        assert outcome(node, f"{network} {one} {other}") == (1, told)
        assert outcome(node, network) == (1, told), "without a job, those are tried that were silent"
    assert passes(node, network), "they refuse now"
    assert passes(node, network), "and are forgotten"
    assert passes(node, f"{network} no-such-host.invalid neither-this.invalid"), "unknown names prove nothing"


# --- what jobs need ----------------------------------------------------------------------------------------------


def test_a_container_runtime_that_does_not_answer(node: Node, tmp_path_factory: pytest.TempPathFactory) -> None:
    # The path of a socket has to be short.
    root = tmp_path_factory.mktemp("r")
    (root / "run").mkdir()
    docker = f"{root}/run/docker.sock"

    def found(seconds: float = 30) -> tuple[int, str]:
        return outcome(node, f"python3 -IS checks/container_runtime.py {seconds}", CHECKS_ROOT=str(root))

    assert found() == (0, "passed"), "there is none"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(docker)
        server.listen(8)
        assert found(0.3) == (1, f"failed: {docker} does not answer within 0.3 s")

        def answer() -> None:
            # The first is that of the try before, who has gone.
            for text in (b"", b"HTTP/1.0 500 Internal", b"HTTP/1.0 200 OK"):
                end, _ = server.accept()
                with end, suppress(OSError):
                    end.recv(1000)
                    end.sendall(text)

        answers = threading.Thread(target=answer)
        answers.start()
        assert found() == (1, f"failed: {docker} answers with 500 Internal")
        assert found() == (0, "passed")
        answers.join()
    assert found() == (1, f"failed: {docker} does not answer: Connection refused")


def test_enroot_that_fails(node: Node) -> None:
    node.program("enroot", "#!/bin/sh\necho no space >&2\nexit 1\n")
    runtime = "python3 -IS checks/container_runtime.py 5"
    assert outcome(node, runtime, CHECKS_ROOT=str(node.directory)) == (1, "failed: enroot fails: no space")


def test_a_shared_root_that_hangs(node: Node) -> None:
    (node.directory / "jail" / "usr").mkdir(parents=True)
    jail = str(node.directory / "jail")
    node.program("isthmus-enter", "#!/bin/sh\nexec sleep 600\n")
    told = f"failed: {jail} does not answer within 0.3 s"
    assert outcome(node, "python3 -IS checks/shared_root.py 0.3", CHECKS_JAIL=jail) == (1, told)
    node.program("isthmus-enter", "#!/bin/sh\necho 'isthmus-enter: shared root is stale' >&2\nexit 125\n")
    found = outcome(node, "python3 -IS checks/shared_root.py 5", CHECKS_JAIL=jail)
    assert found == (1, "failed: shared root is stale")
    assert passes(node, "python3 -IS checks/shared_root.py 5"), "there is none"


def test_a_shared_root_that_is_looked_at_slowly_does_not_hang(node: Node) -> None:
    (node.directory / "jail" / "usr").mkdir(parents=True)
    node.program("isthmus-enter", "#!/bin/sh\ni=0\nwhile [ $i -lt 1000000 ]; do i=$((i + 1)); done\n")
    assert passes(node, "python3 -IS checks/shared_root.py 0.05", CHECKS_JAIL=str(node.directory / "jail"))


def test_scripts_are_sound_shell(node: Node) -> None:
    files = [*node.scripts.glob("*.sh"), *node.scripts.glob("checks/*.sh")]
    assert len(files) == 5
    for file in files:
        subprocess.run(["sh", "-n", file], check=True)
