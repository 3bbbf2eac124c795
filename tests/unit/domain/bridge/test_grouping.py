"""Which labels and annotations make a group: none is read that admission does not guard."""

from collections import UserDict

import pytest

from isthmus.domain.bridge.grouping import GROUP_ANNOTATIONS, GROUP_LABELS, group_of
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod


class Watched(UserDict[str, str]):
    """Labels or annotations that remember which of them somebody asked for."""

    def __init__(self, there: dict[str, str]) -> None:
        super().__init__(there)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


def read_by_group_of(labels: dict[str, str], annotations: dict[str, str]) -> tuple[set[str], set[str]]:
    watched = Watched(labels), Watched(annotations)
    group_of(Pod(ObjectMeta(name="p", namespace="ns", labels=watched[0], annotations=watched[1])))
    return watched[0].read, watched[1].read


@pytest.mark.parametrize("gang", [{}, dict.fromkeys(GROUP_ANNOTATIONS, "true")])
@pytest.mark.parametrize("present", [(), *((key,) for key in GROUP_LABELS), GROUP_LABELS[1:3]])
def test_all_that_decides_about_a_group_is_guarded(present: tuple[str, ...], gang: dict[str, str]) -> None:
    labels, annotations = read_by_group_of(dict.fromkeys(present, "0"), gang)
    assert labels <= set(GROUP_LABELS)
    assert annotations <= set(GROUP_ANNOTATIONS)
    assert labels
