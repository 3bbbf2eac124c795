"""Login pods: sshd for people, and sackd beside it, through which their commands reach Slurm.

    sackd          holds the cluster's key; fetches slurm.conf and is sent every change of it     ─┐ /run/slurm
    sshd, login    sshd, its users' processes; asks sackd to sign, and never sees the key         ◄┘

With a shared root, sshd and all that it starts are programs of that root, and run inside it; sackd stays outside.

Nothing that changes while people work ends their sessions: users, their keys and sshd's settings are mounted files
that are read again, sackd takes new keys and configuration while it runs. Only another image or pod template makes
pods again.
"""

from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.operator import partnames, sshdconfig
from isthmus.domain.operator.manifests import common, jail, munge, sshd, sssd, startorder, users
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.domain.operator.manifests.waitscripts import VERSION
from isthmus.model.slinky import Controller, LoginSet, SharedRoot

APP: Final = "login"
COMPONENT: Final = "login"

_KEYS: Final = "/run/secrets/slurm"
_SOCKETS: Final = "/run/slurm"

# People who may become root. Several pods may have one root, and write the same.
_START: Final = (
    r"""
if [[ -d /etc/sudoers.d ]]; then
    install -m 440 /dev/stdin "/etc/sudoers.d/isthmus.$HOSTNAME" <<< '%"""
    + users.SUDO_GROUP
    + r""" ALL=(ALL:ALL) NOPASSWD: ALL'
    mv -f "/etc/sudoers.d/isthmus.$HOSTNAME" /etc/sudoers.d/isthmus
fi
"""
    + startorder.CONF_LINKS
    + sshd.SERVE
)

# Entering takes a right that nobody needs inside, and with which root there could mount what is root's elsewhere.
_INSIDE: Final = (
    jail.WAIT
    + r"""
script=$1
shift
exec isthmus-enter "$@" -- setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin -- bash -euc "$script"
"""
)

# sackd starts itself again for new keys by the path that it was called with: it must be whole.
_SACKD: Final = (
    startorder.AWAIT
    + VERSION
    + r"""
shopt -s nullglob
version /run/secrets/slurm first
for key in /run/secrets/slurm/[!.]*; do install -o slurm -g slurm -m 600 "$key" /etc/slurm/; done
install -d -o slurm -g slurm -m 755 /run/slurm

follow() {
    local key seen=$1 now
    while pause 2; do
        version /run/secrets/slurm now
        [[ $now != "$seen" ]] || continue
        seen=$now
        for key in /run/secrets/slurm/[!.]*; do
            if [[ $(sha256sum < "$key") != "$(sha256sum < "/etc/slurm/${key##*/}")" ]]; then
                install -o slurm -g slurm -m 600 "$key" /etc/slurm/
                kill -HUP "$sackd"
            fi
        done
    done
}

await_one_of "$ISTHMUS_CONF_SERVERS"
sackd=
# sackd has no ear for TERM, and as the first process of its container it would be waited for until it is killed.
trap '[[ -z $sackd ]] || kill "$sackd"; exit 143' TERM
setpriv --reuid=slurm --regid=slurm --init-groups "$(command -v sackd)" -D --conf-server "$ISTHMUS_CONF_SERVERS" &
sackd=$!
follow "$first" &
wait "$sackd"
"""
)

_LISTENS: Final = r"""
printf -v port '%04X' 22
grep -q ":$port [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6
"""


def container(loginset: LoginSet) -> str:
    """What the container of sshd is called: as in slurm-operator, or as in Soperator in a SlurmCluster's pods."""
    owner = loginset.metadata.controller
    return "sshd" if owner and owner.kind == "SlurmCluster" else "login"


def labels(loginset: LoginSet, controller: str) -> dict[str, str]:
    """Make the marks of everything that belongs to a LoginSet."""
    return common.labels(APP, loginset.metadata.name, COMPONENT, cluster=controller)


def selector(loginset: LoginSet) -> str:
    """How the pods are selected, for the scale subresource."""
    return f"{names.NAME_LABEL}={APP},{names.INSTANCE_LABEL}={loginset.metadata.name}"


def services(loginset: LoginSet, controller: str) -> tuple[Manifest, Manifest]:
    """Make the Service that gives each pod a name, and the one for logins.

    Both also lead to pods that are not ready: when Slurm is away, people can still reach their files.
    """
    meta, marks = loginset.metadata, labels(loginset, controller)
    inner = common.service(
        partnames.login_internal(meta.name),
        meta.namespace,
        marks,
        port=partnames.SSH_PORT,
        port_name="login",
        headless=True,
        before_ready=True,
    )
    outer = common.service(
        meta.name,
        meta.namespace,
        marks,
        port=partnames.SSH_PORT,
        port_name="login",
        template=loginset.spec.service,
        before_ready=True,
    )
    return inner, outer


def config(loginset: LoginSet, controller: str, *, known: str = "", without_extra: bool = False) -> Manifest:
    """Make the ConfigMap of sshd; raises `BadSshdConfig`, unless what the user adds is left out.

    `known` says by which keys workers are known.
    """
    root = loginset.spec.root_ssh_authorized_keys.strip()
    extra = "" if without_extra else sshdconfig.checked(loginset.spec.extra_sshd_config)
    files = sshd.settings(extra, root_keys=bool(root), known=known)
    files[f"root{users.KEYS_SUFFIX}"] = f"{root}\n" if root else ""
    return sshd.config(loginset.metadata, labels(loginset, controller), files)


def inputs(loginset: LoginSet, controller: Controller, *, settings: Settings) -> object:
    """Everything that the pods depend on except our own code: a change recreates them."""
    spec = loginset.spec
    root = [msgspec.to_builtins(spec.shared_root)] if spec.shared_root else []
    return (
        msgspec.to_builtins([spec.template, spec.sssd_conf_ref]),
        spec.login,
        [controller.spec.auth_type, partnames.conf_server(controller)],
        [settings.login_image, settings.domain],
        *root,
    )


def statefulset(loginset: LoginSet, controller: Controller, *, settings: Settings) -> Manifest:
    meta, marks = loginset.metadata, labels(loginset, controller.metadata.name)
    image = loginset.spec.login.get("image") or settings.login_image
    pod: Manifest = {
        "dnsConfig": common.dns(controller.metadata.key, settings),
        "initContainers": _sidecars(loginset, controller, image),
        "containers": [_login(loginset, controller, image)],
        "volumes": _volumes(loginset, controller),
    }
    template = common.pod_template(
        common.ping_for_all(pod, loginset.spec.template.spec),
        marks,
        main=container(loginset),
        template=loginset.spec.template,
        containers={container(loginset): loginset.spec.login},
    )
    kind = "OnDelete" if loginset.spec.strategy.get("type") == "OnDelete" else "RollingUpdate"
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.metadata(meta.name, meta.namespace, marks),
        "spec": {
            "replicas": loginset.spec.replicas,
            "serviceName": partnames.login_internal(meta.name),
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 0,
            "updateStrategy": {"type": kind},
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }


def _login(loginset: LoginSet, controller: Controller, image: str) -> Manifest:
    listens = {"exec": {"command": ["bash", "-euc", _LISTENS]}, "timeoutSeconds": 5}
    mounts = [*sshd.mounts(), users.mount(), *common.mounts([("slurm-sockets", _SOCKETS)])]
    if controller.spec.auth_type == "munge":
        mounts.append(munge.socket_mount())
    if loginset.spec.sssd_conf_ref:
        mounts.append(sssd.mount())
    made: Manifest = {
        "name": container(loginset),
        "image": image,
        "command": ["bash", "-euc", _START],
        "ports": [{"name": "login", "containerPort": partnames.SSH_PORT, "protocol": "TCP"}],
        # By TCP as long as nobody listens, which costs nothing. Later, each time would be a line in the log.
        "startupProbe": {"tcpSocket": {"port": partnames.SSH_PORT}, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {**listens, "periodSeconds": 10},
        "volumeMounts": mounts,
    }
    shared = loginset.spec.shared_root
    return _inside(made, shared, directory=bool(loginset.spec.sssd_conf_ref)) if shared else made


def _inside(login: Manifest, shared: SharedRoot, *, directory: bool) -> Manifest:
    """Run the container's script inside the shared root, as soon as that is filled."""
    shell, flags, script = login["command"]
    binds = jail.login_binds(sshdconfig.PLACE, *((sssd.STATE,) if directory else ()))
    return {
        **login,
        "command": [shell, flags, _INSIDE, login["name"], script, *jail.options(binds)],
        "startupProbe": {**login["startupProbe"], "failureThreshold": jail.PATIENCE},
        # What entering needs: profiles of container runtimes forbid it even to those who have the right.
        "securityContext": {
            "capabilities": {"add": ["SYS_ADMIN"]},
            "appArmorProfile": {"type": "Unconfined"},
            "seccompProfile": {"type": "Unconfined"},
        },
        "volumeMounts": [*login["volumeMounts"], *jail.mounts(shared, binds)],
    }


def _sidecars(loginset: LoginSet, controller: Controller, image: str) -> list[Manifest]:
    munged = controller.spec.auth_type == "munge"
    made = [munge.sidecar(image)] if munged else []
    sackd = _sackd(controller, image, munged=munged)
    made.append(_beside_root(sackd) if loginset.spec.shared_root else sackd)
    if loginset.spec.sssd_conf_ref:
        made.append(sssd.sidecar(image))
    return made


def _sackd(controller: Controller, image: str, *, munged: bool) -> Manifest:
    mounts = [*common.mounts([("slurm-sockets", _SOCKETS)], read_only=False), users.mount()]
    mounts += [munge.socket_mount()] if munged else common.mounts([("slurm-keys", _KEYS)])
    ready = f"[[ -e {_SOCKETS}/conf/slurm.conf ]]" if munged else f"[[ -S {_SOCKETS}/sack.socket ]]"
    return {
        "name": "sackd",
        "image": image,
        "restartPolicy": "Always",
        "command": ["bash", "-euc", _SACKD],
        "env": [{"name": "ISTHMUS_CONF_SERVERS", "value": partnames.conf_server(controller)}],
        # Not a start-up probe: sshd need not wait until there is a slurmctld. Not every second: each time, the
        # container runtime starts a process, which takes a tenth of a second of CPU time, as long as the pod lives.
        "readinessProbe": {
            "exec": {"command": ["bash", "-c", ready]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "volumeMounts": mounts,
    }


def _beside_root(sackd: Manifest) -> Manifest:
    """Let sackd know the users of the shared root."""
    shell, flags, script = sackd["command"]
    return {
        **sackd,
        "command": [shell, flags, f"{jail.WAIT}{jail.KNOW_USERS}{script}"],
        "volumeMounts": [*sackd["volumeMounts"], jail.glance()],
    }


def _volumes(loginset: LoginSet, controller: Controller) -> list[Manifest]:
    name = controller.metadata.name
    made: list[Manifest] = [
        *sshd.volumes(loginset.metadata.name),
        users.volume(name),
        {"name": "slurm-sockets", "emptyDir": {"medium": "Memory"}},
    ]
    if controller.spec.auth_type == "munge":
        made += munge.volumes(partnames.auth(name))
    else:
        made.append(common.key_volume(controller))
    if reference := loginset.spec.sssd_conf_ref:
        made += sssd.volumes(reference)
    if shared := loginset.spec.shared_root:
        made += jail.volumes(shared)
    return made
