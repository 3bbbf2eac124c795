"""Probes that run a program: kubelet allows a second if nobody says otherwise, too little on a busy node."""

from typing import Any

import pytest

from tests.unit.domain.operator.manifests import objects, test_accounting, test_controller, test_login, test_worker

MUNGE: dict[str, Any] = {"authType": "munge"}
PODS = {
    "slurmctld": test_controller.pod(test_controller.controller(**MUNGE)),
    "slurmd": test_worker.made(by=test_worker.controller(**MUNGE))["spec"],
    "login": test_login.pod(by=objects.controller(**MUNGE)),
    "slurmdbd": test_accounting.pod(
        test_accounting.made(**MUNGE), {"slurmdbd.conf": b"", "munge.key": b"", "jwt.key": b""}
    ),
}


@pytest.mark.parametrize("name", PODS)
def test_a_program_that_is_asked_has_time_to_answer(name: str) -> None:
    pod = PODS[name]
    probes = [
        probe
        for container in (*pod["containers"], *pod.get("initContainers", ()))
        for key, probe in container.items()
        if key.endswith("Probe") and "exec" in probe
    ]
    assert probes
    assert all(probe.get("timeoutSeconds", 1) >= 5 for probe in probes)


@pytest.mark.parametrize("name", PODS)
def test_no_program_is_run_every_second_until_a_daemon_has_started(name: str) -> None:
    """Of daemons that wait for others, or for a shared root. munged waits for nobody."""
    (probe,) = (it["startupProbe"] for it in PODS[name]["containers"])
    if "exec" in probe:
        seconds = int(probe["exec"]["command"][-1])
        assert 10 <= seconds < probe["timeoutSeconds"]
        assert probe["failureThreshold"] * seconds >= 600
    else:
        assert set(probe) == {"tcpSocket", "periodSeconds", "failureThreshold"}
