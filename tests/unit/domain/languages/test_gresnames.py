import pytest

from isthmus.domain.languages.gresnames import NONE, gres_of
from isthmus.errors import Terminal


@pytest.mark.parametrize(
    ("resource", "gres"),
    [
        ("nvidia.com/gpu", "gpu"),
        ("amd.com/gpu", "gpu"),
        ("nvidia.com/mig-1g.5gb", "gpu:mig-1g.5gb"),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "gpu:gpu.nvidia.com"),
        ("deviceclass.resource.kubernetes.io/dra.cpu", NONE),
        ("example.com/nic", None),
    ],
)
def test_what_is_known_without_being_told(resource: str, gres: str | None) -> None:
    assert gres_of(resource) == gres


def test_the_configured_table_goes_first() -> None:
    table = {"nvidia.com/gpu": "gpu:a100", "rdma/hca": NONE}
    assert gres_of("nvidia.com/gpu", table) == "gpu:a100"
    assert gres_of("rdma/hca", table) == NONE


@pytest.mark.parametrize("gres", ["gpu=2", "gpu:a:b", "gpu,nic", "1g", "gpu:1g.5gb", "a b", "gpu\n"])
def test_what_slurm_would_read_otherwise_is_refused(gres: str) -> None:
    with pytest.raises(Terminal, match=r"is not a valid GRES for a/b"):
        gres_of("a/b", {"a/b": gres})


@pytest.mark.parametrize("gres", ["shard", "mps", "shard:a100"])
def test_what_would_end_slurmctld_is_refused(gres: str) -> None:
    with pytest.raises(Terminal, match="shares device files"):
        gres_of("nvidia.com/gpu.shared", {"nvidia.com/gpu.shared": gres})
