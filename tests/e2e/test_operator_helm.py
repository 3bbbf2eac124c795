"""A cluster of the chart, in the older of two Slurm releases, from its installation to a larger one."""

from tests.bed.operator_ground import CHARTS, OperatorGround
from tests.e2e.site import Site


def test_a_cluster_by_helm_in_the_old_version(operator_ground: OperatorGround) -> None:
    chart = str(CHARTS / "slurm-cluster")
    with operator_ground.namespace("my-namespace") as namespace:
        values = (
            "--set=slurmVersion=24.11",
            "--set=slurmNodes.worker.size=1",
            "--set=slurmNodes.login.sshdServiceNodePort=0",
            "--set=slurmNodes.worker.resources.memory=512Mi",
        )
        operator_ground.helm("install", "my-cluster", chart, f"--namespace={namespace}", *values)
        old = Site(operator_ground, namespace)
        old.ready("slurmcluster/my-cluster")
        assert old.exec("login-0", "sinfo", "--version").startswith("slurm-wlm 24.11")
        operator_ground.helm(
            *("upgrade", "my-cluster", chart, f"--namespace={namespace}", "--reuse-values"),
            *("--set=slurmNodes.worker.size=2", "--set=slurmNodes.controller.resources.memory=1Gi"),
        )
        # slurmctld is made anew meanwhile, since its memory has changed. Who asks the old one, hears nothing.
        old.eventually(
            lambda: old.exec("login-0", "timeout", "30", "sinfo", "-hN", "-p", "main", "-o%T").split(),
            "the second worker to be idle",
            holds=lambda it: it == ["idle", "idle"],
            within=300,
        )
        # The old one may have seen that worker, too.
        old.eventually(
            lambda: old.get("pod/controller-0")["spec"]["containers"][0]["resources"]["limits"]["memory"],
            "slurmctld to have more memory",
            holds=lambda it: it == "1Gi",
        )
        # The chart's checks lie on the shared root, where slurmd finds them, and pass.
        old.eventually(
            lambda: old.exec("login-0", "timeout", "30", "scontrol", "show", "config"),
            "Slurm to know of the checks",
            holds=lambda it: "/opt/slurm_scripts/prolog.sh" in it and "/opt/slurm_scripts/hc_program.sh" in it,
        )
        runner = ("python3", "/opt/slurm_scripts/check_runner.py", "--check", "shared_root")
        assert old.exec("worker-0", *runner) == "shared_root: passed\n"
        assert old.exec("login-0", "timeout", "120", "srun", "--nodes=2", "hostname").split()
