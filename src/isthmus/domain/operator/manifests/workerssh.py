"""sshd of workers: only users with a job on a node get a shell there, as part of that job.

PAM decides, by pam_slurm_adopt: users without a job are refused, and so are all while Slurm does not answer.
With a shared root, sshd and all that it starts are inside it, as on login nodes, and see what jobs see. What PAM
does is yet for the image to say: /etc/pam.d comes from outside, as a directory. Over a single file of the root, it
would come off as soon as somebody replaces that file by another.
"""

from collections.abc import Iterable
from typing import Final

from isthmus.domain.operator import partnames, sshdconfig
from isthmus.domain.operator.manifests import sshd
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.model.slinky import NodeSet

_PAM: Final = "/etc/pam.d"
_RUN: Final = "/run/sshd"
_BINDS: Final = (_PAM, sshdconfig.PLACE, sshdconfig.HOST_KEYS, _RUN)

# The first rule of all: no earlier one can let users in. This module does not judge root.
_RULE: Final = (
    "account requisite pam_slurm_adopt.so nodename=$ISTHMUS_NODE"
    " action_no_jobs=deny action_unknown=newest action_adopt_failure=deny action_generic_failure=deny"
)

_CHECK: Final = rf"""
module=security/pam_slurm_adopt.so
missing=
command -v sshd > /dev/null || missing=sshd
[[ $(compgen -G "/usr/lib*/$module"; compgen -G "/usr/lib/*/$module") ]] || missing=pam_slurm_adopt.so
[[ $(head -n 1 {_PAM}/sshd) == 'account requisite pam_slurm_adopt.so '* ]] || missing='rule for it in {_PAM}/sshd'
if [[ $missing ]]; then
    echo "ssh is enabled, but in the image, or the shared root, there is no $missing: nobody is let in" >&2
    exec sleep 60
fi
"""
"""Bash, where sshd is to run: continues only if the rule cannot be bypassed."""

# A shell has what it starts beside itself ignore Ctrl-C, and so would every session.
_BESIDE: Final = rf"""
serve=$(cat << 'END OF SSHD'
{_CHECK}{sshd.SERVE}
END OF SSHD
)
let_in() {{
    local enter=() rule
    mkdir -p {_RUN} {_PAM} /run/slurm /var/spool/slurmd
    rule="{_RULE}"
    [[ $(head -n 1 {_PAM}/sshd) == "$rule" ]] || sed -i "1i $rule" {_PAM}/sshd
    if [[ ${{ISTHMUS_INSIDE-}} ]]; then
        read -ra enter <<< "isthmus-enter $ISTHMUS_INSIDE {" ".join(f"bind={path}" for path in _BINDS)} --"
    fi
    env --default-signal "${{enter[@]}}" bash -euc "$serve" sshd -o UsePAM=yes -o PidFile=none
}}
(while :; do let_in || true; sleep 2; done) &
"""
"""Bash, before slurmd is started: keeps an sshd running. What becomes of it is nothing to slurmd."""


def beside(slurmd: Manifest) -> Manifest:
    """Let sshd run beside slurmd, in its container."""
    shell, flags, script, *rest = slurmd["command"]
    return {
        **slurmd,
        "command": [shell, flags, f"{_BESIDE}{script}", *rest],
        "ports": [*slurmd["ports"], {"name": "ssh", "containerPort": partnames.SSH_PORT, "protocol": "TCP"}],
        "volumeMounts": [*slurmd["volumeMounts"], *sshd.mounts()],
    }


def config(nodeset: NodeSet, marks: dict[str, str], *, known: str = "", without_extra: bool = False) -> Manifest:
    """Make the ConfigMap of sshd; raises `BadSshdConfig`, unless what the user adds is left out.

    `known` says by which keys workers are known. root comes in by a key, if it has one in its home.
    """
    extra = nodeset.spec.ssh.extra_sshd_config
    extra = "" if without_extra else sshdconfig.checked(extra, decided=sshdconfig.DECIDED_FOR_WORKERS)
    return sshd.config(nodeset.metadata, marks, sshd.settings(extra, root_keys=True, known=known))


def hosts(nodeset: NodeSet, pods: Iterable[str]) -> tuple[str, ...]:
    """The nodes of a NodeSet as ssh_known_hosts has them; `pods` are host names of those that are there."""
    if nodeset.spec.scaling_mode == "DaemonSet":
        return tuple(sorted(pods))
    prefix = nodeset.spec.template.spec.get("hostname") or f"{nodeset.metadata.name}-"
    return (f"{prefix}*",)
