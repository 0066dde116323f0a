"""Comparisons with a model while a bug is planted."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

__all__ = ["run"]

SEEDS = 100
EXAMPLES = 20
"""Examples for each seed. Some seeds show a bug with the first examples, others after thousands, so many are tried."""


def run(machine: type[RuleBasedStateMachine]) -> None:
    """Compare until a difference shows, or until the examples of all seeds have run.

    Raises:
        AssertionError: they differ.
    """
    for number in range(SEEDS):
        run_state_machine_as_test(
            seed(number)(type(machine.__name__, (machine,), {})),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                deadline=None,
                phases=[Phase.generate],
                derandomize=True,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
