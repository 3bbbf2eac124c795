"""Drivers of dynamic resource allocation beside a kubelet: GPUs that are not there, and the CPUs of the machine.

They run as processes of a node, where a DaemonSet would put them. A container sees what they prepare only by a
container runtime that knows CDI and NRI, newer than Debian's: `Runtime` takes its place on one node. All of it is
pinned beside the tests, and nothing is in the product.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from isthmus.local import binaries, cri
from isthmus.local.architecture import native
from isthmus.local.binaries import Module
from isthmus.local.controlplane import Part
from isthmus.local.node import Node
from isthmus.local.progress import PlainProgress, Progress
from tests.bed.programs import given

GPU_DRIVER = "gpu.example.com"
CPU_DRIVER = "dra.cpu"

_GPUS = "dra-example-kubeletplugin"
_CPUS = "dracpu"
_CONTAINERD = ("containerd", "containerd-shim-runc-v2")
_SOURCES = {
    _GPUS: f"sigs.k8s.io/dra-example-driver/cmd/{_GPUS}",
    _CPUS: f"github.com/kubernetes-sigs/dra-driver-cpu/cmd/{_CPUS}",
    **{name: f"github.com/containerd/containerd/cmd/{name}" for name in _CONTAINERD},
}
_HOME = Path(__file__).parent / "modules"
_MODULES = tuple(
    Module(name, version, {program: _SOURCES[program] for program in programs}, home=_HOME)
    for name, version, programs in (
        ("dra-example-driver", "0.4.0", (_GPUS,)),
        ("dra-driver-cpu", "0.2.0", (_CPUS,)),
        ("containerd", "1.7.29", _CONTAINERD),
    )
)
_CDI = "/var/run/cdi"
_PLUGINS = "/var/lib/kubelet/plugins"
_CPU_PORT = 18080

# What the local cluster's machines do not show of their CPUs, for the driver alone: kubelet counts what is there.
_WITH_CPUS = r"""
set -eu
places=/sys/devices/system
if [ ! -e $places/cpu/online ]; then
    mount -t tmpfs tmpfs $places/node
    online=
    for topology in $places/cpu/cpu*/topology; do
        cpu=${topology%/topology}
        mkdir -p $cpu/node0 $cpu/cache
        online=$online${online:+,}${cpu##*cpu}
    done
    mkdir -p $places/node/node0
    echo $online > $places/cpu/online
    echo $online > $places/node/node0/cpulist
fi
exec "$@"
"""


def programs(progress: Progress | None = None) -> dict[str, Path]:
    """Build the drivers and the runtime, unless the cache has them."""
    if ready := given():
        return {name: ready / name for module in _MODULES for name in module.programs}
    found: dict[str, Path] = {}
    for module in _MODULES:
        found |= binaries._ensure_module(module, progress or PlainProgress(), native())
    return found


@contextmanager
def running_gpus(node: Node, kubeconfig: Path, *, count: int) -> Iterator[None]:
    """Run the example driver on a node, with so many GPUs."""
    argv = (
        str(programs()[_GPUS]),
        f"--kubeconfig={kubeconfig}",
        f"--node-name={node.name}",
        f"--num-devices={count}",
        f"--cdi-root={_CDI}",
        f"--driver-name={GPU_DRIVER}",
        "--device-profile=gpu",
        "--kubelet-registrar-directory-path=/var/lib/kubelet/plugins_registry",
        f"--kubelet-plugins-directory-path={_PLUGINS}",
        "--healthcheck-port=-1",
    )
    with _running(node, "dra-example-driver", argv, GPU_DRIVER):
        yield


@contextmanager
def running_cpus(node: Node, kubeconfig: Path) -> Iterator[None]:
    """Run the driver of CPUs on a node, each CPU a device."""
    argv = (
        *("unshare", "--mount", "sh", "-c", _WITH_CPUS, "sh"),
        str(programs()[_CPUS]),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={node.name}",
        "--cpu-device-mode=individual",
        f"--bind-address=127.0.0.1:{_CPU_PORT}",
    )
    with _running(node, "dra-driver-cpu", argv, CPU_DRIVER):
        yield


@contextmanager
def _running(node: Node, name: str, argv: tuple[str, ...], driver: str) -> Iterator[None]:
    machine = node.machine
    machine.run("mkdir", "-p", _CDI, f"{_PLUGINS}/{driver}")
    machine.start_until_ready(Part(name, argv, lambda: machine.runs(name)))
    try:
        yield
    finally:
        machine.kill(name)


@contextmanager
def runtime_with_devices(node: Node) -> Iterator[None]:
    """Let a node's containers be run by a containerd that gives them devices by CDI, and tells NRI of them."""
    found = programs()
    usual, machine = node.containerd(), node.machine
    config = machine.directory / "containerd-cdi.toml"
    written = (machine.directory / "containerd.toml").read_text()
    cri_section = '[plugins."io.containerd.grpc.v1.cri"]\n'
    assert cri_section in written
    known = f'{cri_section}enable_cdi = true\ncdi_spec_dirs = ["{_CDI}"]\n'
    nri = '[plugins."io.containerd.nri.v1.nri"]\ndisable = false\nsocket_path = "/var/run/nri/nri.sock"\n'
    config.write_text(f"{written.replace(cri_section, known)}\n{nri}")
    path = f"PATH={found['containerd-shim-runc-v2'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    argv = ("env", path, str(found["containerd"]), f"--config={config}", "--log-level=warn")
    _restart(node, replace(usual, argv=argv))
    try:
        yield
    finally:
        _restart(node, usual)


def _restart(node: Node, part: Part) -> None:
    node.machine.kill(part.name)
    node.machine.start_until_ready(replace(part, ready=lambda: cri.is_ready(node.socket)))
