"""What every sshd has, of login nodes and of workers: its files, how it starts, and how it takes new settings.

    ConfigMap NAME-ssh-config    /etc/ssh/isthmus    sshd_config; keys of root; by which keys workers are known
    Secret NAME-ssh-host-keys    /run/secrets/ssh    by which clients know it again

New settings end no session: they are mounted files, for which sshd starts itself again beside its sessions.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from isthmus.domain.operator import partnames, sshdconfig
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.domain.operator.manifests.waitscripts import PAUSE, VERSION
from isthmus.model.meta import ObjectMeta

KNOWN_HOSTS: Final = "ssh_known_hosts"
"""The file of the ConfigMap that ssh_config of the images names."""

# sshd starts itself again by the path that it was called with: it must be whole. It is this very process by then,
# whose number the shell calls by two dollar signs; but of those, Kubernetes leaves one.
# Several pods may have one root: what is of one of them is written below /run, and the rest is the same for all.
SERVE: Final = (
    PAUSE
    + VERSION
    + r"""
conf=/etc/ssh/isthmus/sshd_config
plain=/etc/ssh/isthmus/sshd_config.plain
settled=/run/sshd/sshd_config
sshd=$(command -v sshd)
install -d -m 755 /run/sshd

# Puts the settings in place, unless sshd would not start with them.
settle() {
    local trouble
    if trouble=$("$sshd" -t -f "$conf" 2>&1); then
        install -m 600 "$conf" "$settled"
    else
        printf 'extraSshdConfig is not taken: %s\n' "$trouble" >&2
    fi
}

state() {
    local settings keys
    version /etc/ssh/isthmus settings
    version /run/secrets/ssh keys
    printf -v "$1" '%s' "$settings $keys"
}

# Ends with sshd: its number may be somebody else's by then.
follow() {
    local seen=$1 now parent
    while pause 2 && read -r _ _ _ parent _ < "/proc/$BASHPID/stat" && [[ $parent == "$main" ]]; do
        state now
        if [[ $now != "$seen" ]]; then
            seen=$now
            settle
            kill -HUP "$main"
        fi
    done
}

main=$BASHPID
state seen
install -m 600 "$plain" "$settled"
settle
# People behind a Service share one address: wrong guesses must not lock out all others. Older ones lack this.
options=()
lenient='PerSourcePenalties no'
if ! grep -qi '^[[:space:]]*PerSourcePenalties' "$conf" && "$sshd" -t -f "$plain" -o "$lenient" 2> /dev/null; then
    options=(-o "$lenient")
fi
follow "$seen" &
exec "$sshd" -D -e -f "$settled" "${options[@]}" "$@"
"""
)
"""Bash: becomes sshd. Arguments are options for it, which count more than its settings."""


def config(meta: ObjectMeta, marks: Mapping[str, str], files: Mapping[str, str]) -> Manifest:
    return common.configmap(partnames.ssh_config(meta.name), meta.namespace, marks, files)


def settings(extra: str, *, root_keys: bool, known: str) -> dict[str, str]:
    """Write the files of the ConfigMap that all have: those that count, those that sshd surely starts with."""
    return {
        "sshd_config": sshdconfig.write(extra, root_keys=root_keys),
        "sshd_config.plain": sshdconfig.write(root_keys=root_keys),
        KNOWN_HOSTS: known,
    }


def host_keys_secret(meta: ObjectMeta, marks: Mapping[str, str], keys: Mapping[str, str]) -> Manifest:
    """Make the Secret of host keys, which are never changed: clients remember them."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": common.metadata(partnames.ssh_host_keys(meta.name), meta.namespace, marks),
        "immutable": True,
        "stringData": dict(keys),
    }


def known_hosts(hosts: Iterable[str], keys: Mapping[str, bytes]) -> str:
    """Write who is known by these host keys, of which there are public ones among them; hosts may be patterns."""
    names = ",".join(hosts)
    public = [keys[f"{name}.pub"].decode().split()[:2] for name in sshdconfig.KEY_NAMES if f"{name}.pub" in keys]
    return "".join(f"{names} {kind} {key}\n" for kind, key in public) if names else ""


def volumes(name: str) -> list[Manifest]:
    keys = {"secretName": partnames.ssh_host_keys(name), "defaultMode": 0o600}
    return [
        {"name": "ssh-config", "configMap": {"name": partnames.ssh_config(name)}},
        {"name": "ssh-host-keys", "secret": keys},
    ]


def mounts() -> list[Manifest]:
    return common.mounts([("ssh-config", sshdconfig.PLACE), ("ssh-host-keys", sshdconfig.HOST_KEYS)])
