"""What a worker pod writes into its gres.conf, given what it sees."""

import subprocess

from isthmus.domain.operator.manifests import devicefiles
from isthmus.domain.operator.nodeset.devices import Source

NVIDIA = ("/dev/nvidia[0-9]*",)


def written(*facts: str, of: tuple[Source, ...]) -> dict[str, list[str]]:
    """Give lines, stand-ins and warnings."""
    text = "\n".join(it.line() for it in of)
    done = subprocess.run(
        ["bash", "-euc", f'shopt -s nullglob\n{devicefiles.LINES}\ngres_lines "$1"', "test", text],
        input="".join(f"{it}\n" for it in facts),
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        what, _, rest = line.partition(" ")
        found.setdefault(what, []).append(rest)
    return found


def gpus(count: int, kind: str = "") -> Source:
    return Source("gpu", kind, count, "nvidia", "nvidia_gpu_env", NVIDIA)


def seen(*numbers: int) -> list[str]:
    return [f"file /dev/nvidia{it}" for it in numbers]


def test_every_device_has_its_line() -> None:
    assert written(*seen(3, 5), of=(gpus(2),)) == {
        "line": [f"Name=gpu Flags=nvidia_gpu_env File=/dev/nvidia{it}" for it in (3, 5)]
    }


def test_other_files_are_not_devices_of_it() -> None:
    facts = [*seen(0), "file /dev/nvidiactl", "file /dev/nvidia-uvm", "file /dev/dri/renderD128"]
    assert written(*facts, of=(gpus(1),)) == {"line": ["Name=gpu Flags=nvidia_gpu_env File=/dev/nvidia0"]}


def test_of_all_devices_of_a_machine_those_that_the_runtime_gave_count() -> None:
    """A privileged container sees them all."""
    uuids = [f"gpu GPU-{it} {it}" for it in range(8)]
    facts = [*seen(*range(8)), *uuids, "given GPU-6", "given GPU-1"]
    assert written(*facts, of=(gpus(2),))["line"] == [
        f"Name=gpu Flags=nvidia_gpu_env File=/dev/nvidia{it}" for it in (1, 6)
    ]
    assert written(*seen(*range(8)), "given 2", of=(gpus(1),))["line"] == [
        "Name=gpu Flags=nvidia_gpu_env File=/dev/nvidia2"
    ]


def test_more_than_asked_for_are_only_counted() -> None:
    for facts in (seen(0, 1, 2), [*seen(0, 1, 2), "given GPU-unknown", "given 1"]):
        found = written(*facts, of=(gpus(1),))
        assert found["stand-in"] == ["/run/slurm/devices/gpu--0"]
        assert found["line"] == ["Name=gpu Flags=nvidia_gpu_env File=/run/slurm/devices/gpu--0"]
        assert found["warning"] == ["gpu: 3 are seen and 1 asked for, so they are only counted"]


def test_fewer_than_asked_for_are_all_there_is() -> None:
    found = written(*seen(0), of=(gpus(2),))
    assert found["line"] == ["Name=gpu Flags=nvidia_gpu_env File=/dev/nvidia0"]
    assert found["warning"] == ["gpu: 1 are there and 2 asked for"]
    assert "line" not in written(of=(gpus(2),))


def test_gpus_that_nobody_asked_for_are_counted_where_there_are_none() -> None:
    guess = Source("gpu", "a100", 2, "guess", "", NVIDIA)
    assert written(*seen(0, 1), of=(guess,))["line"] == [
        f"Name=gpu Type=a100 File=/dev/nvidia{it}" for it in (0, 1)
    ]
    assert written(of=(guess,))["stand-in"] == [f"/run/slurm/devices/gpu-a100-{it}" for it in (0, 1)]


def test_types_share_the_files_in_order() -> None:
    found = written(*seen(0, 1, 2), of=(gpus(2, "a100"), gpus(1, "h100")))
    assert [it.split(" Flags=nvidia_gpu_env ") for it in found["line"]] == [
        ["Name=gpu Type=a100", "File=/dev/nvidia0"],
        ["Name=gpu Type=a100", "File=/dev/nvidia1"],
        ["Name=gpu Type=h100", "File=/dev/nvidia2"],
    ]


def test_a_mig_instance_is_its_gpu_and_two_capabilities() -> None:
    small = Source("gpu", "mig-1g.5gb", 2, "mig", "nvidia_gpu_env")
    facts = ["mig 0 21 22", "mig 0 30 31"]
    start = "Name=gpu Type=mig-1g.5gb Flags=nvidia_gpu_env MultipleFiles="
    assert written(*facts, of=(small,))["line"] == [
        f"{start}/dev/nvidia0,/dev/nvidia-caps/nvidia-cap{one},/dev/nvidia-caps/nvidia-cap{two}"
        for one, two in ((21, 22), (30, 31))
    ]


def test_which_instance_has_which_profile_is_not_guessed() -> None:
    both = (
        Source("gpu", "mig-1g.5gb", 1, "mig", "nvidia_gpu_env"),
        Source("gpu", "mig-2g.10gb", 1, "mig", "nvidia_gpu_env"),
    )
    found = written("mig 0 21 22", "mig 0 30 31", of=both)
    assert found["stand-in"] == [f"/run/slurm/devices/gpu-{it}-0" for it in ("mig1g5gb", "mig2g10gb")]
    assert len(found["warning"]) == 2


def test_nvml_adds_links_and_cores_but_knows_other_types() -> None:
    assert "AutoDetect=nvml" in written("nvml", *seen(0), of=(gpus(1),))["line"]
    assert "AutoDetect=nvml" not in written("nvml", *seen(0), of=(gpus(1, "big"),))["line"]
    assert "AutoDetect=nvml" not in written("nvml", *seen(0, 1), of=(gpus(1),))["line"]


def test_shards_stand_beside_the_gpus() -> None:
    found = written(*seen(0), of=(gpus(1), Source("shard", "", 8, "share")))
    assert found["line"][-1] == "Name=shard Count=8"
