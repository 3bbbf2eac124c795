from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod
from isthmus.operator.nodesets.memory import Memory


def test_a_pod_that_was_made_and_never_shows_is_looked_for_again() -> None:
    memory = Memory()
    assert memory.unseen_until(now=100) is None
    memory.made("w-0", "w-0", now=100)
    assert list(memory.unseen([], now=110)) == ["w-0"]
    assert memory.unseen_until(now=110) == 20
    assert not memory.unseen([], now=130)
    assert memory.unseen_until(now=130) is None


def test_a_pod_that_shows_is_waited_for_no_longer() -> None:
    memory = Memory()
    memory.made("w-0", "w-0", now=100)
    assert not memory.unseen([Pod(metadata=ObjectMeta(name="w-0"))], now=101)
    assert memory.unseen_until(now=101) is None
