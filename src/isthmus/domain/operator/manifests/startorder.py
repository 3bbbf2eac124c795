"""How a container waits for another daemon before its own starts, which would end without it.

Kubelet would start it again, but later every time.
"""

from typing import Final

TRAP: Final = "trap 'exit 143' TERM"
"""Bash, before anything is waited for: the first process of a container hears no signal that it does not expect."""

AWAIT: Final = (
    r"""
# Returns when somebody listens at one of these, such as host:port,host:port.
await_one_of() {
    local servers=$1 server IFS=,
    """
    + TRAP
    + r"""
    while :; do
        for server in $servers; do
            if (exec 3<> "/dev/tcp/${server%:*}/${server##*:}") 2> /dev/null; then return 0; fi
        done
        sleep 0.2
    done
}
"""
)
