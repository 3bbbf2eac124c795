# ruff: noqa: F401 - tests are collected, and fixtures found, by their names
"""What of the Slurm client depends on the event loop: TLS, UNIX sockets, connections that break, the poller."""

from tests.flows.slurm.conftest import client
from tests.flows.slurm.test_client import test_every_endpoint_answers_over_a_unix_socket
from tests.flows.slurm.test_exactly_once import (
    test_many_at_once_with_lost_answers_among_them,
    test_the_answer_is_cut_in_the_middle,
)
from tests.flows.slurm.test_poller import (
    test_changes_are_told_in_order_with_old_and_new,
    test_slurmctld_away_and_back,
)
from tests.flows.slurm.test_transport import (
    test_an_answer_that_comes_twice_confuses_nobody,
    test_silence_is_a_lost_answer,
    test_slurmrestds_own_second_answers_confuse_nobody,
    test_the_second_slurmrestd_takes_over_and_keeps_the_work,
    test_tls_with_an_authority_of_ones_own,
)
