"""What runs in the pod of slurmctld: three scripts, the same for every cluster.

    slurmctld     START      first files into /etc/slurm; then, as user slurm:
                  SUPERVISE  keeps slurmctld running, passes on its log, takes orders
    reconfigure   FOLLOW     brings changed files into /etc/slurm and lets slurmctld take them

Why slurmctld has a supervisor: when it is reconfigured it starts a second process, which reads the new files.
If that one accepts them, it continues alone, with another PID; if not, the first continues unchanged.
That needs a parent that outlives both. Run by itself in the foreground, slurmctld would end on a bad file.

Nothing of a custom resource is ever part of a script: all that differs comes from mounted files.
"""

from typing import Final

from isthmus.domain.operator.manifests import startorder
from isthmus.domain.operator.manifests.waitscripts import PAUSE

PLACE: Final = "/mnt/slurm"
"""Where the ConfigMap and the Secret of a cluster are mounted together."""
REVISION: Final = "revision.config"
KEYS_REVISION: Final = "revision.keys"
"""The files there that name the revision of the ConfigMap and of the Secret."""
RUN: Final = "/run/slurmctld"
STATE: Final = "/var/spool/slurmctld"

_COMMON: Final = r"""
set -euo pipefail
place=/mnt/slurm etc=/etc/slurm run=/run/slurmctld state=/var/spool/slurmctld
owner=()
if (( EUID == 0 )); then owner=(-o slurm -g slurm); fi
# In each pod's own corner of the state: the files that slurmctld last ran with, and the revision tried since.
corner=$state/.config-$HOSTNAME
mkdir -p "$corner" 2> /dev/null || { corner=$run/config; mkdir -p "$corner"; }

is_key() { [[ $1 == *.key || $1 == *.jwks ]]; }

# Makes a directory hold what another holds: keys for slurmctld alone, scripts so that they can be run.
deliver() {
    local file mode
    mkdir -p "$2"
    for file in "$1"/[!.]*; do
        mode=644
        if is_key "$file"; then
            mode=600
        elif [[ $(head -c 2 "$file" | tr -d '\0') == '#!' ]]; then
            mode=755
        fi
        install "${owner[@]}" -m "$mode" "$file" "$2/" || return 1
    done
    for file in "$2"/[!.]*; do
        [[ -e $1/${file##*/} ]] || is_key "$file" || rm "$file"
    done
}

# What follows is asked twice a second, as long as the pod lives: where it can, the shell reads files itself.
content() { IFS= read -r -d '' "$2" < "$1" || true; } 2> /dev/null

# Which of several slurmctld is in charge is written down with the state; of one alone, nothing is.
one_alone() { [[ ! -e $state/heartbeat ]]; }
in_charge() {
    od -An -tu8 --endian=big -j8 -N8 "$state/heartbeat" 2> /dev/null | tr -d ' ' || true
}

# Of the files in a directory, into the variable of that name.
read_revision() {
    local file text both=''
    for file in "$1"/revision.*; do
        text=''
        content "$file" text
        both+=${text//$'\n'/ }
    done
    printf -v "$2" '%s' "$both"
}

revision() {
    local it
    read_revision "$1" it
    printf '%s' "$it"
}

# By the name of its own Service, a pod would reach itself from an address that is not its own, to which nobody can
# answer later. Kubelet writes this file anew for each container that it starts.
know_itself() {
    local conf='' hosts='' own address names line=$'\n'"SlurmctldHost=$HOSTNAME("
    content "$1/slurm.conf" conf
    conf=$'\n'$conf
    [[ $conf == *"$line"* ]] || return 0
    own=${conf#*"$line"}
    own=${own%%$'\n'*}
    own=${own%)}
    content /etc/hosts hosts
    [[ -n $own && ! $hosts =~ [[:space:]]"$own"($|[[:space:]]) ]] || return 0
    while read -r address names; do
        [[ " ${names//$'\t'/ } " == *" $HOSTNAME "* ]] || continue
        { echo "$address $own" >> /etc/hosts; } 2> /dev/null || true
        return
    done < /etc/hosts
}
"""

START: Final = (
    _COMMON
    + startorder.AWAIT
    + startorder.TRAP
    + r"""
if (( EUID == 0 )); then
    for directory in "$state" "$run" "$etc"; do
        [[ $(stat -c %U "$directory") == slurm ]] || chown slurm:slurm "$directory" || true
    done
fi
know_itself "$place"
[[ -e $etc/slurm.conf ]] || deliver "$place" "$etc"
if [[ -e $corner/good && -e $corner/tried && $(< "$corner/tried") == "$(revision "$etc")" ]]; then
    echo 'slurmctld did not start with its newest files; it goes back to those that it last ran with'
    deliver "$corner/good" "$etc"
elif [[ $(revision "$corner/good") != "$(revision "$etc")" ]]; then
    revision "$etc" > "$corner/tried"
fi

# A cluster that slurmdbd has never heard of cannot start without it; any other can.
setting() { sed -n "s/^$1=//p" "$etc/slurm.conf" | head -n 1; }
host=$(setting AccountingStorageHost) port=$(setting AccountingStoragePort)
if [[ -n $host && ! -e $state/assoc_mgr_state ]]; then
    echo "waiting for slurmdbd at $host:$port"
    await_one_of "$host:$port"
fi
as_slurm=()
if (( EUID == 0 )); then as_slurm=(setpriv --reuid=slurm --regid=slurm --init-groups); fi
exec "${as_slurm[@]}" bash -c "$0" slurmctld "$@"
"""
)

SUPERVISE: Final = r"""
set -uo pipefail
leaving='' again=''
# Before anything else: the first process of a container hears no signal that it does not expect.
trap 'leaving=yes; { echo leave >&3; } 2> /dev/null' TERM INT
run=/run/slurmctld state=/var/spool/slurmctld ordinal=${HOSTNAME##*-} arguments=("$@")
[[ -p $run/orders ]] || mkfifo -m 600 "$run/orders"
exec 3<> "$run/orders"
: > "$run/fatal"
# slurmctld only wants to see that there is one. It runs as under systemd, which is the way that outlives bad files.
export NOTIFY_SOCKET=$run/nobody

in_charge() { od -An -tu8 --endian=big -j8 -N8 "$state/heartbeat" 2> /dev/null | tr -d ' '; }

# The first of several slurmctld takes control when it starts. Left to itself, Slurm needs half a minute for that,
# and may start from jobs as they were before. So a standby that is in charge is asked to write down all and leave.
reclaim() {
    local charge tries
    charge=$(in_charge)
    [[ $ordinal == 0 && -n $charge && $charge != 0 ]] || return 0
    touch "$state/.yield"
    for (( tries = 0; tries < 300; tries++ )); do
        [[ -z $leaving ]] || break
        if [[ ! -e $state/.yield && ! -e $state/.yielding ]]; then break; fi
        # Nobody has taken note of it within three seconds: nobody is there.
        if (( tries == 30 )) && [[ -e $state/.yield ]]; then break; fi
        sleep 0.1
    done
    rm -f "$state/.yield" "$state/.yielding"
}

# A standby answers nobody in its first seconds, and the first waits for its answer when it starts. So it comes
# later: when somebody else is in charge, as the heartbeat shows. If there is nobody, it has to come all the same.
stay_back() {
    local seen tries
    (( ordinal )) || return 0
    rm -f "$state/.yielding"
    seen=$(cksum < "$state/heartbeat" 2> /dev/null)
    for (( tries = 0; tries < 100; tries++ )); do
        [[ -z $leaving ]] || return 0
        sleep 0.1
        [[ $(cksum < "$state/heartbeat" 2> /dev/null) != "$seen" ]] || continue
        [[ $(in_charge) == "$ordinal" ]] || return 0
    done
}

begin() {
    local options=()
    reclaim
    stay_back
    [[ -z $leaving ]] || exit 0
    begun=$SECONDS
    # Without jobs there is nothing to lose by ignoring what a crash left unwritten; otherwise better not to start.
    # But what has been used is first written down minutes after the first jobs, and slurmctld insists on it.
    local file needed=(job_state)
    if grep -q '^AccountingStorageHost=' /etc/slurm/slurm.conf; then needed+=(assoc_usage qos_usage); fi
    for file in "${needed[@]}"; do [[ -e $state/$file ]] || options=(-i); done
    (
        # The log ends when the last slurmctld has ended, whichever process that is by then.
        slurmctld --systemd "${options[@]}" "${arguments[@]}" 3>&- 2>&1 |
            tee >(grep --line-buffered -F 'fatal: ' >> "$run/fatal")
        echo ended >&3
    ) &
}

tell() {
    local process name
    for process in /proc/[0-9]*; do
        { read -r name < "$process/comm"; } 2> /dev/null || continue
        [[ $name != slurmctld* ]] || kill -s "$1" "${process#/proc/}"
    done
}

begin
while :; do
    read -r order <&3 || continue
    case $order in
        leave)
            tell TERM
            # And again until it has ended: one that is just being started has no name yet, or does not heed it. Not
            # sooner: it leaves nodes that do not answer alone three seconds after it was told last.
            { sleep 5; echo leave >&3; } &
            ;;
        restart) again=yes; tell TERM ;;
        # Without writing anything: somebody else has jobs that this one does not know of.
        step-back) again=yes; tell KILL ;;
        ended)
            [[ -z $leaving ]] || exit 0
            if [[ -z $again ]] && (( SECONDS - begun < 10 )); then
                # One that fails at once is left to Kubernetes, which waits longer each time.
                tail -n 5 "$run/fatal" > /dev/termination-log
                exit 1
            fi
            [[ -n $again ]] || echo 'slurmctld has ended; it is started again'
            again=''
            begin
            ;;
    esac
done
"""

FOLLOW: Final = (
    _COMMON
    + PAUSE
    + r"""
ordinal=${HOSTNAME##*-}
answers() { scontrol ping > /dev/null 2>&1; }

stands_by() {
    local charge
    ! one_alone || return 1
    charge=$(in_charge)
    [[ -n $charge && $charge != "$ordinal" && $(grep -c '^SlurmctldHost=' "$etc/slurm.conf") -gt 1 ]]
}

in_use_elsewhere() {
    local good
    for good in "$state"/.config-*/good; do
        [[ $(revision "$good") != "$1" ]] || return 0
    done
    return 1
}

# Remembers files that slurmctld runs with. Keys are not kept: they belong in memory alone.
keep() {
    rm -rf "$corner/next"
    deliver "$etc" "$corner/next"
    rm -f "$corner"/next/*.key "$corner"/next/*.jwks
    rm -rf "$corner/good"
    mv "$corner/next" "$corner/good"
    rm -f "$corner/tried"
}

reject() {
    echo "$1" > "$run/rejected"
    { echo "$1"; tail -c 3000 <<< "$2"; } | tee /dev/termination-log >&2
    exit 1
}

take() {
    local said fatal tries
    rm -rf "$run/before" "$run/next"
    # The volume may change while it is read: then this fails, and is done again.
    deliver "$place" "$run/next" && [[ $(revision "$run/next") == "$1" ]] || return 0
    if stands_by; then
        # A standby has nobody to tell it that files are bad: it takes them from the one in charge, and starts anew.
        in_use_elsewhere "$1" || return 0
        deliver "$run/next" "$etc"
        echo restart > "$run/orders"
    elif ! answers; then
        # slurmctld does not start with the files that it has: the next start takes these. Unless it has tried them:
        # then it is going back to those that worked, and must find them. It is asked again when it answers.
        [[ ! -e $corner/tried || $(< "$corner/tried") != "$1" ]] || return 0
        deliver "$run/next" "$etc"
        return
    else
        deliver "$etc" "$run/before"
        fatal=$(wc -l < "$run/fatal")
        deliver "$run/next" "$etc"
        if ! said=$(scontrol reconfigure 2>&1); then
            deliver "$run/before" "$etc"
            # One that was away, or too slow to answer, did not refuse anything.
            [[ $said != *'timed out'* ]] && answers || return 0
            # Its log comes to us through others, which may be slow.
            for (( tries = 0; tries < 100; tries++ )); do
                (( $(wc -l < "$run/fatal") == fatal )) || break
                sleep 0.1
            done
            reject "$1" "$(tail -n "+$((fatal + 1))" "$run/fatal")
$said"
        fi
    fi
    keep
    echo "slurmctld has taken revision $1"
}

# The first wants to be in charge again, or was away for so long that another is: two must not be in charge at once.
make_way() {
    local charge
    ! one_alone || return 0
    charge=$(in_charge)
    [[ -n $charge ]] || return 0
    if [[ $ordinal != 0 && $charge == "$ordinal" && -e $state/.yield ]]; then
        mv "$state/.yield" "$state/.yielding"
        echo restart > "$run/orders"
    elif [[ $ordinal == 0 && $before == 0 && $charge != 0 ]]; then
        echo step-back > "$run/orders"
    fi
    before=$charge
}

trap 'exit 0' TERM INT
before=''
until [[ -e $etc/slurm.conf && -p $run/orders ]]; do sleep 0.1; done
while :; do
    know_itself "$etc"
    make_way
    read_revision "$place" wanted
    read_revision "$etc" held
    if [[ $wanted != "$held" && ! ( -e $run/rejected && $(< "$run/rejected") == "$wanted" ) ]]; then
        take "$wanted"
    elif [[ -e $corner/tried ]] && answers; then
        keep
    fi
    pause 0.5
done
"""
)

STAND_IN: Final = "trap 'exit 0' TERM; sleep infinity & wait"
"""What a placeholder does: it holds the image on its node, and nothing else."""
