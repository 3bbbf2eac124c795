"""What a refresh says that failed."""

from isthmus.inspect.clusterrefresh import _last_word
from isthmus.model.pod import ContainerState, ContainerStatus, Pod, PodStatus, Terminated


def ended(name: str, code: int, message: str) -> Pod:
    state = ContainerState(terminated=Terminated(exit_code=code, message=message))
    return Pod(status=PodStatus(container_statuses=(ContainerStatus(name=name, state=state),)))


def test_the_last_line_of_who_failed_is_told() -> None:
    failed = ended("populate", 1, "copying\nno space is left\n\n")
    assert _last_word((failed, ended("populate", 0, "done"), ended("other", 1, "not ours"))) == "no space is left"


def test_nothing_is_told_where_nobody_said_anything() -> None:
    running = Pod(status=PodStatus(container_statuses=(ContainerStatus(name="populate"),)))
    assert _last_word((running, ended("populate", 1, " \n"), Pod())) == ""
