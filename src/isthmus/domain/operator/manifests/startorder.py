"""What containers do before their daemon starts: wait for another one, and put Slurm's files where people look.

A daemon that starts before the one that it needs would end. Kubelet would start it again, but later every time.
"""

from typing import Final

from isthmus.domain.operator.manifests.waitscripts import PAUSE

TRAP: Final = "trap 'exit 143' TERM"
"""Bash, before anything is waited for: the first process of a container hears no signal that it does not expect."""

AWAIT: Final = (
    PAUSE
    + r"""
# Returns when somebody listens at one of these, such as host:port,host:port.
await_one_of() {
    local servers=$1 server IFS=,
    """
    + TRAP
    + r"""
    while :; do
        for server in $servers; do
            if { true 3<> "/dev/tcp/${server%:*}/${server##*:}"; } 2> /dev/null; then
                end_of_pauses
                return 0
            fi
        done
        pause 0.2
    done
}
"""
)

CONF_LINKS: Final = r"""
for file in slurm.conf plugstack.conf mpi.conf cli_filter.lua; do
    path=/etc/slurm/$file
    if [[ ! -e $path || $(< "$path") == 'include /etc/slurm/plugstack.conf.d/*.conf' ]]; then
        ln -sfn "/run/slurm/conf/$file" "$path" 2> /dev/null || true
    fi
done
"""
"""Bash: lets Slurm's files be found in /etc/slurm, too, where scripts and people expect them.

They are those that a user's command reads, because it takes all of them from one directory. What somebody has put
there stays, but for what Debian's package puts there. Pods that share a root write the same at the same time.
"""
