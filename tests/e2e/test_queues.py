"""KAI's quick start on a cluster: two departments with two queues each. What nobody else wants is for all, the rightful owner gets
back what is its own, and then all is quiet. The demonstration plays it; what is asked here is what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from e2e.seeds.shell import Shell, cluster

pytestmark = pytest.mark.slow

TEAMS = ("training", "evaluation", "search", "ads")
_RUNNING = "kubectl get pods -n queues --field-selector status.phase=Running -o jsonpath={.items[*].metadata."
_TRAINING_7 = (
    "kubectl get pod -n queues training-7 --ignore-not-found "
    '-o jsonpath="{.metadata.uid}{.status.conditions[*].reason}"'
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A cluster on which the demonstration was played, and what it showed."""
    with cluster(tmp_path_factory.mktemp("queues"), "--node", "h100x8") as shell:
        yield shell, shell.run("allot demo queues --kubeconfig kubeconfig --keep", seconds_max=300)


def test_the_demonstration_shows_what_others_leave_and_what_is_given_back(played: tuple[Shell, str]) -> None:
    shown = " ".join(played[1].split())
    assert "training gpu 2 - 8 8 0" in shown
    assert "training gpu 2 - 4 4 4" in shown
    assert "queue training is not entitled to it: queue training would exceed its fair share of gpu" in shown
    assert "training gpu 2 - 2 2 6" in shown
    # A StatefulSet is one job: of training and of search some pods wait.
    assert "raise training:gpu=8 2 2" in shown


def test_events_say_in_plain_words_who_took_what_from_whom(played: tuple[Shell, str]) -> None:
    shell, _ = played
    told = shell.run("kubectl get events -n queues --field-selector reason=Preempted -o jsonpath={.items[*].message}")
    assert re.search("Reclaimed by queues/[a-z-]*search", told)
    assert "queue training uses 8 GPUs with a quota of 2 GPUs" in told
    assert re.search("Reclaimed by queues/[a-z-]*ads", told)


def test_a_cluster_that_is_left_alone_rests(played: tuple[Shell, str]) -> None:
    shell, _ = played
    before = sorted(shell.run(f"{_RUNNING}uid}}").split())
    assert len(before) == 8
    # Three times somebody who has no right to more comes anew, and the scheduler looks at all queues.
    for _ in range(3):
        old = shell.run("kubectl get pod -n queues training-7 -o jsonpath={.metadata.uid}")
        shell.run("kubectl delete pod -n queues training-7")
        shell.shows(_TRAINING_7, lambda text, old=old: old not in text and "Unschedulable" in text)  # type: ignore[misc]
    assert sorted(shell.run(f"{_RUNNING}uid}}").split()) == before
    names = shell.run(f"{_RUNNING}name}}").split()
    assert {team: sum(name.startswith(team) for name in names) for team in TEAMS} == dict.fromkeys(TEAMS, 2)


def test_who_waits_is_told_why(played: tuple[Shell, str]) -> None:
    shell, _ = played
    assert "queue search would exceed its fair share of gpu" in shell.run("allot queues search")
    told = shell.run("allot explain -n queues pod/search-3 || true")
    assert "queue search is not entitled to it: queue search would exceed its fair share of gpu" in told


def test_queues_of_others_are_left_alone(played: tuple[Shell, str]) -> None:
    shell, _ = played
    shell.run("kubectl delete namespace queues")
    told = shell.run("allot demo queues --kubeconfig kubeconfig 2>&1 || true")
    assert "error: queue research: already exists in this cluster" in told
