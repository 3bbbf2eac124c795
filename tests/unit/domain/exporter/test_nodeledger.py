from typing import Any

from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.nodeledger import NodeLedger
from isthmus.model.slurm import Node, Number

NOW = 1_000_000.0


def node(*states: str, **changes: Any) -> Node:
    return Node(name="n1", state=states, **{"gres": "gpu:a100:4", **changes})


def test_a_node_fails_once_however_it_goes_on() -> None:
    ledger = NodeLedger(Limits())
    ledger.see(node("IDLE"), now=NOW)
    ledger.see(node("IDLE", "DRAIN", reason="fan"), now=NOW)
    ledger.see(node("DOWN", "DRAIN", reason="fan"), now=NOW)
    assert ledger.fails.rows == {("n1", "IDLE", "true", "false", "false", "fan"): 1}


def test_nodes_that_were_out_before_or_that_power_saving_has_did_not_fail() -> None:
    ledger = NodeLedger(Limits())
    ledger.see(node("DOWN"), now=NOW)
    ledger.see(node("IDLE"), now=NOW)
    ledger.see(node("DOWN", "POWERED_DOWN"), now=NOW)
    assert not ledger.fails.rows


def test_how_long_a_node_was_out_is_observed_when_it_is_back() -> None:
    ledger = NodeLedger(Limits())
    ledger.see(node("MIXED"), now=NOW)
    ledger.see(node("MIXED", "DRAIN"), now=NOW + 10)
    assert not ledger.draining.rows
    ledger.see(node("IDLE", "DRAIN"), now=NOW + 50)
    assert ledger.draining.rows[("n1",)][1] == 40
    restarted = NodeLedger(Limits())
    restarted.load(ledger.save())
    restarted.see(node("IDLE"), now=NOW + 350)
    assert restarted.unavailable.rows[("n1",)][1] == 300


def test_a_node_that_was_out_before_has_been_so_since_its_reason() -> None:
    ledger = NodeLedger(Limits())
    ledger.see(node("DOWN", reason_changed_at=Number.of(NOW - 3600)), now=NOW)
    ledger.see(node("IDLE"), now=NOW)
    assert ledger.unavailable.rows[("n1",)][1] == 3600


def test_gpus_spend_time_only_while_slurm_answers_and_a_set_clock_adds_little() -> None:
    ledger = NodeLedger(Limits())
    ledger.see(node("IDLE"), now=NOW)
    ledger.advance(NOW, in_touch=True)
    ledger.advance(NOW + 10, in_touch=True)
    ledger.advance(NOW + 30, in_touch=False)
    ledger.advance(NOW + 20, in_touch=True)
    assert ledger.gpu_seconds.rows == {("n1", "IDLE", "false", "false", "false"): 40}
    ledger.advance(NOW + 7200, in_touch=True)
    assert ledger.gpu_seconds.rows == {("n1", "IDLE", "false", "false", "false"): 40 + 4 * 60}


def test_a_node_that_is_gone_leaves_no_series() -> None:
    ledger = NodeLedger(Limits())
    ledger.see(node("IDLE"), now=NOW)
    ledger.see(node("DOWN"), now=NOW)
    ledger.gone("n1")
    ledger.advance(NOW, in_touch=True)
    ledger.advance(NOW + 9, in_touch=True)
    assert not any(tally.rows for tally in ledger.tallies)
