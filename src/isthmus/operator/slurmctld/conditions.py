"""What a Controller reports about its configuration: a condition and Events from one verdict."""

from typing import Final

from isthmus.domain.kube import conditions
from isthmus.domain.operator.slurmfiles.delivery import Verdict
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Condition, condition
from isthmus.model.slinky import CONTROLLERS, Controller

CONFIG_APPLIED: Final = "ConfigApplied"
MONITORED: Final = "ServiceMonitorCreated"


def config_condition(verdict: Verdict, *, invalid: bool) -> Condition:
    """Whether every daemon runs with the configuration as it is now."""
    match verdict.state:
        case "applied":
            return conditions.yes(CONFIG_APPLIED, "Applied", verdict.message)
        case "rejected":
            return conditions.no(CONFIG_APPLIED, "Invalid" if invalid else "Rejected", verdict.message)
        case "delivering":
            return conditions.no(CONFIG_APPLIED, "Delivering", verdict.message)
        case _:
            return conditions.unknown(CONFIG_APPLIED, "OutOfTouch", verdict.message)


def tell_config(recorder: Recorder, controller: Controller, verdict: Verdict) -> None:
    """Write Events about the configuration, once for each change."""
    before = condition(controller.status.conditions, CONFIG_APPLIED)
    if verdict.state == "applied" and (before is None or before.status != "True"):
        recorder.event(CONTROLLERS, controller, "ConfigApplied", verdict.message, action="Reconfigure")
    if verdict.state == "rejected" and (before is None or before.message != verdict.message):
        note = (
            f"{verdict.message}. The cluster keeps its previous configuration; correct extraConf or the "
            "files, and it is retried"
        )
        recorder.event(CONTROLLERS, controller, "ConfigRejected", note, warning=True, action="Reconfigure")
