"""The bridge as its users run it, a process of its own."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench.process import Process, running
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_conf import PARTITION


def bridge(plane: ControlPlaneBed, slurm: SlurmBed) -> AbstractContextManager[Process]:
    """Run everything but admission in one process."""

    def words(place: Path) -> Sequence[str | Path]:
        token, config = place / "token", place / "config.yaml"
        token.touch(mode=0o600)
        token.write_text(slurm.token("slurm"))
        config.write_text(
            f"slurmRestApi: {slurm.rest_url}\nslurmCompleter: {slurm.completer_url}\nslurmJwtFile: {token}\n"
            f"partition: {PARTITION}\nexclusive: false\n"
        )
        return ("bridge", "all", f"--config={config}", f"--kubeconfig={plane.kubeconfig}")

    return running(words)
