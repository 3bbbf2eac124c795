"""How containers wait without starting a process each time.

What a script does again and again, it does as long as the pod lives. And what kubelet runs in a container costs a
tenth of a second of CPU time, whatever it is. So the probe of a daemon that starts does not come every second: it
waits by itself.
"""

from typing import Any, Final

PAUSE: Final = r"""
# Waits so many seconds, for what nobody ever writes. Who has waited closes that: no daemon is to inherit it.
pause() {
    [[ ${nothing-} ]] || exec {nothing}<> <(:)
    read -rt "$1" -u "$nothing" || true
}
end_of_pauses() {
    [[ ! ${nothing-} ]] || exec {nothing}>&-
    nothing=
}
"""
"""Bash: `pause SECONDS`, and `end_of_pauses` before another program takes the place of the shell."""

VERSION: Final = r"""
# Which files a volume holds, into the variable of that name: kubelet replaces all of them at once, by a link.
version() {
    local here=$PWD
    printf -v "$2" '%s' ''
    if cd -P "$1/..data" 2> /dev/null; then printf -v "$2" '%s' "$PWD"; fi
    cd "$here"
}
"""
"""Bash: `version DIRECTORY NAME`, of a ConfigMap or a Secret that is mounted there."""

_ONE_PROBE: Final = 20
"""Seconds that a probe waits before it fails, and is run again."""

_UNTIL_STARTED: Final = r"""
until started; do
    (( SECONDS < $1 )) || exit 1
    pause 1
done
"""


def startup_probe(script: str, *, within: int) -> dict[str, Any]:
    """Make the probe of a daemon that has so many seconds to start; the script defines `started` in Bash."""
    return {
        "exec": {"command": ["bash", "-uc", f"{PAUSE}{script}{_UNTIL_STARTED}", "started", str(_ONE_PROBE)]},
        "periodSeconds": 1,
        # Of a node that is busy: the last look may take a while.
        "timeoutSeconds": 3 * _ONE_PROBE,
        "failureThreshold": within // _ONE_PROBE,
    }
