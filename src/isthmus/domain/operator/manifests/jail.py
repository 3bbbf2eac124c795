"""What login and worker pods have in common where people and jobs live in a shared root.

    /mnt/jail           the volume, and below it the volumes inside it (sub-mounts)
    /mnt/jail/.isthmus/ready    exists when it is filled; pods that need it wait for it, at the last moment
    bind=...            what of each pod is seen inside: sockets, names of hosts, users, its own /tmp

A worker's slurmd stays outside, and its plugin lets jobs in (`plugstack_line`). On a login node all is inside.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from isthmus.domain.operator.manifests import common, startorder, users
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.domain.operator.manifests.waitscripts import PAUSE
from isthmus.model.slinky import SharedRoot, SubMount

ROOT: Final = "/mnt/jail"
VOLUME: Final = "jail"
SCRIPTS: Final = "/opt/slurm_scripts"
"""The directory of the shared root that workers see at the same place, where scripts run outside."""

_TMP: Final = "/tmp"  # noqa: S108 - each pod's own, which is a volume
_TMP_VOLUME: Final = "tmp"

_EVERYWHERE: Final = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", _TMP, users.DIRECTORY)
_WORKER: Final = ("/run/slurm", "/var/spool/slurmd")
_MUNGE: Final = "/run/munge"

WAIT: Final = rf"""
if ! command -v isthmus-enter > /dev/null; then
    echo 'sharedRoot is set, but the image has no isthmus-enter: use one that has it' | tee /dev/termination-log >&2
    exit 1
fi
chmod 1777 {_TMP}
[[ -e /etc/hostname ]] || uname -n > /etc/hostname
{startorder.TRAP}
{PAUSE}
waits_for=
until trouble=$(isthmus-enter root={ROOT} 2>&1); do
    if [[ $trouble != "$waits_for" ]]; then
        printf 'waiting: %s\n' "$trouble" >&2
        waits_for=$trouble
    fi
    pause 0.5
done
end_of_pauses
"""
"""Bash: returns when the root can be entered. Says what it waits for, once."""

KNOW_USERS: Final = rf"""
for file in passwd group; do ln -sfn {ROOT}/etc/$file /etc/$file; done
"""
"""Bash, after `WAIT`: lets a daemon outside know whom `useradd` made inside, at once.

The daemon that signs a user's request names that user: sackd or slurmd. slurmctld believes it, and need not know
the user.
"""

DRIVER_VARIABLE: Final = "ISTHMUS_GPU_DRIVER"
SHOW_DRIVER: Final = rf"""
# Reads /proc/self/mountinfo; prints what the runtime of containers has put into ours, a file or directory a line.
driver_files() {{
    awk '$5 ~ "^/usr/(lib|lib64|bin|sbin)/" || $5 ~ "^(/usr)?/lib/firmware/nvidia/" || \
        $5 ~ "^(/usr/share|/etc)/(nvidia|vulkan|glvnd|egl)/" {{ print $5 }}'
}}
show_driver() {{
    local file place
    while read -r file; do
        # The loader looks for the name without the version, for which others may have another version.
        for place in "$file" "${{file%.so.*}}.so.1"; do
            [[ $place == "$file" || $file == *.so.[0-9]* ]] || continue
            mkdir -p "{ROOT}${{place%/*}}"
            if [[ -d $file ]]; then mkdir -p "{ROOT}$place"; else : >> "{ROOT}$place"; fi
            mount --bind "$file" "{ROOT}$place"
        done
    done
}}
if [[ ${{{DRIVER_VARIABLE}-}} ]]; then driver_files < /proc/self/mountinfo | show_driver; fi
"""
"""Bash, after `WAIT`: lets jobs see the GPUs' driver, which belongs to the machine.

On the shared root there are empty files in its place; what is bound over them is seen in this pod alone.
"""

PATIENCE: Final = 3600
"""Seconds, of start-up probes: a large root takes its time to be filled."""


def worker_binds(auth_type: str) -> tuple[str, ...]:
    """What jobs see of the pod that they run in."""
    return (*_EVERYWHERE, *_WORKER, *((_MUNGE,) if auth_type == "munge" else ()))


def login_binds(*more: str) -> tuple[str, ...]:
    """What people see of a login pod, which is all that belongs to this pod alone.

    With /proc as the container has it: a new one would let who is root there change settings of the whole machine.
    """
    return ("/proc", "/run", *_EVERYWHERE, *more)


def options(binds: Iterable[str]) -> list[str]:
    """Write the root and what is seen inside as `isthmus_jail.so` and `isthmus-enter` want it."""
    return [f"root={ROOT}", *(f"bind={path}" for path in binds)]


def plugstack_line(auth_type: str) -> str:
    """Write the line of plugstack.conf by which jobs of all workers start inside."""
    return " ".join(("required isthmus_jail.so", *options(worker_binds(auth_type))))


def volumes(shared: SharedRoot) -> list[Manifest]:
    """Make the volumes; those of claim templates are made with each pod."""
    made: list[Manifest] = [{"name": VOLUME, **shared.volume}]
    made += [{"name": it.name, **it.volume} for it in shared.sub_mounts if it.volume]
    if not _brings_tmp(shared):
        made.append({"name": _TMP_VOLUME, "emptyDir": {}})
    return list({it["name"]: it for it in made}.values())


def mounts(shared: SharedRoot, binds: Sequence[str]) -> list[Manifest]:
    """Make the mounts of a container that enters the root, or lets others in."""
    made = common.mounts([(VOLUME, ROOT)], read_only=False)
    if not _brings_tmp(shared):
        made += common.mounts([(_TMP_VOLUME, _TMP)], read_only=False)
    return [*made, *(_sub_mount(it, binds) for it in shared.sub_mounts)]


def glance() -> Manifest:
    """Make the mount of a container that stays outside, and only needs the accounts inside."""
    (made,) = common.mounts([(VOLUME, ROOT)])
    return made


def _brings_tmp(shared: SharedRoot) -> bool:
    return any(_path(it) == _TMP for it in shared.sub_mounts)


def _path(mount: SubMount) -> str:
    return mount.mount_path.rstrip("/")


def _sub_mount(mount: SubMount, binds: Sequence[str]) -> Manifest:
    path = _path(mount)
    # What is bound lies over the root: a volume within it has to be there before.
    is_bound = any(path == it or path.startswith(f"{it}/") for it in binds)
    (made,) = common.mounts([(mount.name, path if is_bound else f"{ROOT}{path}")], read_only=mount.read_only)
    return {**made, "subPath": mount.sub_path} if mount.sub_path else made
