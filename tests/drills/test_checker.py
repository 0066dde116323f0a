"""The judge of histories finds exactly the planted faults."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from lmqcluster_chaos.errors import DrillError
from lmqcluster_chaos.judges.checker import FAULTS, judge
from lmqcluster_chaos.load.history import History, read_history

from .model_queue import BUGS, GRACE_S, model_history
from .planted import GUILTY, INNOCENT, Writer, history


@pytest.mark.parametrize("name", GUILTY)
def test_a_planted_fault_is_found_and_only_that(name: str) -> None:
    case, fault, count = GUILTY[name]
    events = history("q", case)
    random.Random(name).shuffle(events)
    judgement = judge(events)
    assert judgement.faults == {**dict.fromkeys(FAULTS, 0), fault: count}
    assert judgement.convicted
    assert len(judgement.examples[fault]) == count


@pytest.mark.parametrize("name", INNOCENT)
def test_doubtful_cases_are_accepted(name: str) -> None:
    judgement = judge(history("q", INNOCENT[name]))
    assert judgement.faults == dict.fromkeys(FAULTS, 0)
    assert not judgement.undecided


def test_all_kinds_at_once_are_distinguished() -> None:
    events = [event for name, (case, _fault, _count) in GUILTY.items() for event in history(name, case)]
    expected = dict.fromkeys(FAULTS, 0)
    for _case, fault, count in GUILTY.values():
        expected[fault] += count
    assert judge(events).faults == expected


def found_in(seed: int, bug: str | None = None) -> tuple[set[str], bool]:
    events, struck = model_history("q", seed, bug)
    judgement = judge(events, grace_s=GRACE_S)
    assert judgement.totals.acknowledged
    return {fault for fault, count in judgement.faults.items() if count}, struck


def test_a_correct_queue_passes_with_any_clients() -> None:
    for seed in range(100):
        assert found_in(seed) == (set(), False), seed


@pytest.mark.parametrize("bug", BUGS)
def test_a_queue_with_a_bug_is_found(bug: str) -> None:
    main, *others = BUGS[bug]
    convicted = 0
    for seed in range(100):
        found, struck = found_in(seed, bug)
        assert found <= {main, *others}, seed
        assert struck or not found, seed
        convicted += main in found
    assert convicted >= 5


def test_a_push_in_flight_during_the_search_is_not_lost() -> None:
    writer = Writer("q")
    writer.lives()
    writer.push("p1-5", 29, takes_s=2)
    writer.drained(30)
    judgement = judge(writer.events)
    assert (judgement.convicted, judgement.undecided) == (False, 1)


def test_the_record_shows_where_a_process_lost_a_message() -> None:
    def where(gone: set[int]) -> tuple[str | None, int | None, int | None]:
        writer = Writer("q")
        for number in range(10):
            writer.push(f"p1-{number}", number)
            if number not in gone:
                writer.pull(f"p1-{number}", f"r{number}", number + 0.1)
                writer.ack(f"r{number}", number + 0.2)
        writer.drained(30)
        account = judge(writer.events).by_process["p1"]
        assert (account.acknowledged, account.lost, account.delivered) == (10, len(gone), 10 - len(gone))
        return account.lost_where, account.lost_first, account.lost_last

    assert where(set()) == (None, None, None)
    assert where({0, 1}) == ("prefix", 0, 1)
    assert where({4, 6}) == ("middle", 4, 6)
    assert where({8, 9}) == ("suffix", 8, 9)
    assert where(set(range(10))) == ("everything", 0, 9)


def test_messages_of_an_undrained_queue_are_undecided_and_not_lost() -> None:
    writer = Writer("q")
    writer.lives()
    writer.push("p1-5", 6)
    judgement = judge(writer.events)
    assert judgement.undecided == 1
    assert not judgement.convicted


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    events = history("q", GUILTY["acked twice"][0])
    written = History(tmp_path / "history.jsonl")
    for event in events:
        written.add(event)
    written.close()
    assert list(read_history([written.path])) == events


def test_an_invalid_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"op": "push", "outcome": "ok", "time_us": 1}\n{"op": "steal", "outcome": "ok", "time_us": 1}\n')
    with pytest.raises(DrillError, match="line 2"):
        list(read_history([path]))
