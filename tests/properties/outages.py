"""A Slurm that goes and comes back, for the models of what decides about its nodes."""

from hypothesis.stateful import RuleBasedStateMachine, rule


class SlurmOutages(RuleBasedStateMachine):
    """`answers`: whether Slurm does. `fresh`: whether what was read of it is what is so now."""

    answers: bool
    fresh: bool

    @rule()
    def slurm_goes(self) -> None:
        self.answers = self.fresh = False

    @rule()
    def slurm_comes(self) -> None:
        self.answers = True
