from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from isthmus.domain.kube import podtrouble
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble
from isthmus.model.event import Event
from isthmus.model.pod import Pod

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def of_pods(pods: list[Pod], *, age: float = 60) -> Trouble:
    return podtrouble.of_pods(pods, now=MADE + timedelta(seconds=age))


def pod(name: str = "login-0", *, ready: bool = False, **status: Any) -> Pod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}, *status.pop("conditions", ())]
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "hpc", "creationTimestamp": MADE},
            "status": {"conditions": conditions, **status},
        },
        Pod,
    )


def test_nothing_is_said_of_pods_that_are_ready() -> None:
    assert of_pods([pod(ready=True)]) == Trouble()
    assert of_pods([]) == Trouble()


def test_a_pod_that_is_on_its_way_is_missing_and_not_wrong() -> None:
    waiting = [{"name": "login", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert of_pods([pod(containerStatuses=waiting)]) == Trouble(missing="pod login-0 is not ready yet")


def test_an_image_that_is_not_there_is_named() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    found = of_pods([pod(containerStatuses=[{"name": "login", "state": {"waiting": waiting}}])])
    assert found.wrong == "pod login-0: container login: ImagePullBackOff: no such image"


def test_the_last_words_of_a_container_are_passed_on() -> None:
    statuses = [
        {
            "name": "mariadb",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "the password\nmust be 8 to 128 letters\n"}},
        }
    ]
    found = of_pods([pod("slurm-mariadb-0", containerStatuses=statuses)])
    assert found.wrong == (
        "pod slurm-mariadb-0: container mariadb ended with 1: the password must be 8 to 128 letters"
    )


def test_side_cars_are_looked_at_first() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    found = of_pods(
        [
            pod(
                initContainerStatuses=[{"name": "sssd", "lastState": ended}],
                containerStatuses=[{"name": "login", "state": {"waiting": {"reason": "PodInitializing"}}}],
            )
        ]
    )
    assert found.wrong == "pod login-0: container sssd ended with 1 (Error)"


def test_what_ended_well_or_runs_again_is_not_wrong() -> None:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    crashed = {"terminated": {"exitCode": 1, "reason": "Error"}}
    statuses = [
        {"name": "first", "state": ended},
        {"name": "sackd", "ready": True, "lastState": crashed},
    ]
    assert of_pods([pod(initContainerStatuses=statuses)]).wrong == ""


def test_a_pod_without_a_node_says_why() -> None:
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available",
    }
    told = "pod login-0 cannot be scheduled: 0/3 nodes are available"
    assert of_pods([pod(conditions=[unplaced])]) == Trouble(wrong=told)
    # At first its volume may still be on its way.
    assert of_pods([pod(conditions=[unplaced])], age=PATIENCE - 1) == Trouble(missing=told)
    # Somebody has to look again then: nothing changes but the time.
    for age, again in ((PATIENCE - 1, True), (PATIENCE, False)):
        assert podtrouble.turns([pod(conditions=[unplaced])], now=MADE + timedelta(seconds=age)) is again
    assert not podtrouble.turns([pod()], now=MADE)


def test_side_cars_that_end_with_the_work_are_nothing_wrong() -> None:
    """The image that fills a shared root sleeps beside the copying; kubelet ends it when that is done."""
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    asleep = {"terminated": {"exitCode": 143, "reason": "Error"}}
    found = of_pods(
        [
            pod(
                "populate-jail-x",
                initContainerStatuses=[{"name": "image", "state": asleep}],
                containerStatuses=[{"name": "populate", "state": done}],
            )
        ]
    )
    assert found == Trouble(missing="pod populate-jail-x has completed and is ending")


def test_a_side_car_that_ends_before_the_work_is_done_is_wrong() -> None:
    killed = {"terminated": {"exitCode": 143, "reason": "Error"}}
    image, populate = {"name": "image", "state": killed}, {"name": "populate", "state": {}}
    found = of_pods([pod(initContainerStatuses=[image], containerStatuses=[populate])])
    assert "container image ended with 143" in found.wrong


def event(reason: str, second: int, message: str = "") -> Event:
    return Event(reason=reason, message=message, last_timestamp=MADE + timedelta(seconds=second))


QUOTA = 'create Pod p-0 in StatefulSet p failed error: pods "p-0" is forbidden: exceeded quota: small'


def test_why_pods_are_not_created_is_what_was_said_last_of_it() -> None:
    refused = event("FailedCreate", 5, QUOTA)
    assert podtrouble.uncreated([refused]) == 'pods "p-0" is forbidden: exceeded quota: small'
    assert podtrouble.uncreated([event("FailedCreate", 1, "other"), refused]).endswith("small")
    assert podtrouble.uncreated([event("SuccessfulDelete", 9), refused]).endswith("small")
    assert podtrouble.uncreated([event("FailedCreate", 5, "webhook says no")]) == "webhook says no"


def test_a_pod_that_was_created_since_is_refused_no_longer() -> None:
    refused = event("FailedCreate", 5, QUOTA)
    assert podtrouble.uncreated([refused, event("SuccessfulCreate", 6)]) == ""
    # Times are whole seconds, and what is refused is tried again.
    assert podtrouble.uncreated([refused, event("SuccessfulCreate", 5)]) == ""
    assert podtrouble.uncreated([refused, event("SuccessfulCreate", 4)]) != ""
    assert podtrouble.uncreated([]) == ""
