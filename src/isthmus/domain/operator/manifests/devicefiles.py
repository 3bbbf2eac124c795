"""How a worker pod finds its devices and writes them down for slurmd, before slurmd starts.

    look_for_devices   what the machine shows: files, what NVIDIA's runtime gave the container, UUIDs, MIG instances
    gres_lines         what follows from that and from ISTHMUS_DEVICES (`nodeset.devices`); it reads nothing else
    write_gres         the file that gres.conf of the cluster includes, on every node another one

A container that is privileged sees all devices of its machine. Which of them are its own, only NVIDIA's runtime
tells. If there are more than the pod has asked for and nobody tells, jobs of two pods could get the same device.
Then Slurm only counts them, and the log says so: plain files stand in for them, as Slurm takes no GPU without a
file. With fewer than asked for, the node has those, and slurmctld, which expects more, drains it.
"""

from typing import Final

from isthmus import names
from isthmus.domain.operator.nodeset.devices import NODE_GRES

_WARNING: Final = "/run/slurm/devices-warning"

LINES: Final = r"""
# Arguments: ISTHMUS_DEVICES. Standard input: facts, `file PATH`, `given ID`, `gpu UUID MINOR`, `mig GPU GI CI` with
# numbers of files, `nvml`. Prints `line` of gres.conf, `stand-in FILE` that has to be made, and `warning TEXT`.
gres_lines() {
    local fact one two three name kind count finder flags globs file start group mine='' nvml='' known=yes
    local -a seen=() given=() migs=() matched found patterns
    local -A minors=() used=() total=()
    while read -r fact one two three; do
        case $fact in
            file) seen+=("$one") ;;
            given) given+=("$one") ;;
            gpu) minors[$one]=$two ;;
            mig) migs+=("/dev/nvidia$one,/dev/nvidia-caps/nvidia-cap$two,/dev/nvidia-caps/nvidia-cap$three") ;;
            nvml) nvml=yes ;;
        esac
    done
    for one in "${given[@]}"; do
        two=${minors[$one]-}
        [[ ! $one =~ ^[0-9]+$ ]] || two=$one
        # One that nobody knows: then none of them says anything.
        [[ $two ]] || { mine=''; break; }
        mine+=" /dev/nvidia$two "
    done
    # Types of one kind of device share its files. Which MIG instance has which profile, no file tells.
    group_of() { group="$finder|$globs"; [[ $finder != mig ]] || group="mig|$kind"; }
    while IFS='|' read -r name kind count finder flags globs; do
        group_of
        total[$group]=$(( ${total[$group]-0} + count ))
    done <<< "$1"
    while IFS='|' read -r name kind count finder flags globs; do
        group_of
        start="Name=$name"
        [[ $kind == - ]] || start+=" Type=$kind"
        [[ $flags == - ]] || start+=" Flags=$flags"
        matched=() found=()
        read -ra patterns <<< "$globs"
        case $finder in
            share) echo "line $start Count=$count"; continue ;;
            mig) matched=("${migs[@]}") ;;
            *)
                for file in "${seen[@]}"; do
                    [[ $finder == files || ! $mine || $mine == *" $file "* ]] || continue
                    for one in "${patterns[@]}"; do [[ $file != $one ]] || { matched+=("$file"); break; }; done
                done
                ;;
        esac
        if (( ${#matched[@]} > total[$group] )) || [[ $finder == guess && ${#matched[@]} == 0 ]]; then
            known=''
            echo "warning $name: ${#matched[@]} are seen and ${total[$group]} asked for, so they are only counted"
            for (( one = 0; one < count; one++ )); do
                file=/run/slurm/devices/$name-${kind//[^A-Za-z0-9]/}-$one
                echo "stand-in $file"
                echo "line $start File=$file"
            done
            continue
        fi
        [[ $finder == nvidia && $kind == - ]] || known=''
        for file in "${matched[@]}"; do
            if [[ ! ${used[$file]-} ]] && (( ${#found[@]} < count )); then found+=("$file"); used[$file]=yes; fi
        done
        (( ${#found[@]} == count )) || echo "warning $name: ${#found[@]} are there and $count asked for"
        for file in "${found[@]}"; do
            [[ $file == *,* ]] && echo "line $start MultipleFiles=$file" || echo "line $start File=$file"
        done
    done <<< "$1"
    # It adds links and cores to what the lines say, but wants types as it calls them.
    [[ ! $nvml || ! $known ]] || echo 'line AutoDetect=nvml'
}
"""
"""Bash: what is decided. Nothing in it looks at the machine."""

_LOOK: Final = r"""
look_for_devices() {
    local globs file entry gi ci
    local -a plugins
    while IFS='|' read -r _ _ _ _ _ globs; do
        # Sorted by number, as CUDA counts.
        for file in $globs; do echo "file $file"; done | sort --version-sort
    done <<< "$1" | awk '!seen[$0]++'
    case ${NVIDIA_VISIBLE_DEVICES-} in
        '' | all | none | void) ;;
        /*) for file in "$NVIDIA_VISIBLE_DEVICES"/*; do echo "given ${file##*/}"; done ;;
        *) for entry in ${NVIDIA_VISIBLE_DEVICES//,/ }; do echo "given $entry"; done ;;
    esac
    for file in /proc/driver/nvidia/gpus/*/information; do
        awk '/^GPU UUID:/ { uuid = $3 } /^Device Minor:/ { print "gpu", uuid, $3 }' "$file"
    done
    for file in /proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*/access; do
        [[ $file =~ /gpu([0-9]+)/mig/gi[0-9]+/ci[0-9]+/access$ ]]
        entry=${BASH_REMATCH[1]}
        gi=$(awk '/^DeviceFileMinor:/ { print $2 }' "${file%/ci*}/access")
        ci=$(awk '/^DeviceFileMinor:/ { print $2 }' "$file")
        [[ ! -e /dev/nvidia-caps/nvidia-cap$ci ]] || echo "mig $entry $gi $ci"
    done
    plugins=(/usr/lib*/slurm*/gpu_nvml.so /usr/lib*/*/slurm*/gpu_nvml.so)
    if (( ${#plugins[@]} )) && ldconfig -p | grep -q 'libnvidia-ml\.so\.1'; then echo nvml; fi
}
"""

WRITE: Final = (
    LINES
    + _LOOK
    + rf"""
write_gres() {{
    local what rest told=''
    mkdir -p /run/slurm/devices
    : > {NODE_GRES}.new
    : > {_WARNING}
    if [[ ${{ISTHMUS_DEVICES-}} ]]; then
        told=$(look_for_devices "$ISTHMUS_DEVICES" | gres_lines "$ISTHMUS_DEVICES")
        while read -r what rest; do
            case $what in
                line) echo "$rest" >> {NODE_GRES}.new ;;
                stand-in) touch "$rest" ;;
                warning) echo "devices of this node: $rest" | tee -a {_WARNING} >&2 ;;
            esac
        done <<< "$told"
    fi
    # slurmd waits a minute for a file that is not there, and then ends.
    mv -f {NODE_GRES}.new {NODE_GRES}
}}
"""
)
"""Bash, with nullglob: what a worker does before slurmd starts."""

TELL: Final = rf"""
said=''
[[ ! $node =~ \ Comment=({names.DEVICES_COMMENT}.*)$ ]] || said=${{BASH_REMATCH[1]}}
wrong=$(sed 's/^devices of this node: //' {_WARNING} 2> /dev/null | paste -sd ';' | head -c 300)
[[ ! $wrong ]] || wrong="{names.DEVICES_COMMENT}$wrong"
# A comment of somebody else stays.
if [[ $said != "$wrong"* && ( $said || $node != *' Comment='* ) ]] || [[ $said && ! $wrong ]]; then
    scontrol update "NodeName=$ISTHMUS_NODE" "Comment=$wrong"
fi
"""
"""Bash, with what scontrol shows of the node in `$node`: lets people, and us, read in Slurm what is wrong."""
