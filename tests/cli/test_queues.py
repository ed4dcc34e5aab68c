"""`allot queues` shows the tree and why jobs wait; `allot install crds` prints what a cluster needs."""

from __future__ import annotations

import yaml

from .command import allot

DUMP = ("-f", "docs/guides/queues-example.yaml")


def test_the_tree_has_every_queue_below_its_parent() -> None:
    (value,) = allot("queues", *DUMP, "-o", "json").lines
    rows = {row["name"]: row for row in value["queues"]}
    assert list(rows) == ["research", "training", "evaluation", "product", "search"]
    assert [row["depth"] for row in value["queues"]] == [0, 1, 1, 0, 1]
    (gpu,) = [each for each in rows["training"]["resources"] if each["resource"] == "gpu"]
    assert (gpu["deserved"], gpu["fairShare"], gpu["allocated"], gpu["pending"]) == ("2", "4", "8", "0")


def test_a_queue_shows_its_jobs_and_why_they_wait() -> None:
    found = allot("queues", "search", *DUMP)
    assert found.code == 0
    assert "reclaims from ml/train-3" in found.stdout
    assert "limit of queue evaluation: 0 GPUs of 2 GPUs in use" in allot("queues", "evaluation", *DUMP).stdout
    assert "ml/eval-0" in allot("queues", "research", *DUMP).stdout


def test_the_tree_fits_on_80_columns() -> None:
    for name in ("", "research"):
        table = allot("queues", *([name] if name else []), *DUMP).stdout.partition("\n\n")[0]
        assert max(map(len, table.split("\n"))) <= 80


def test_a_queue_that_is_not_there_is_an_answer() -> None:
    found = allot("queues", "nobody", *DUMP)
    assert (found.code, found.stderr) == (1, 'error: queue "nobody" does not exist\n')


def test_a_queue_is_explained_with_its_shares_and_what_helps() -> None:
    found = allot("explain", "queue/evaluation", *DUMP)
    assert found.code == 1
    assert found.stdout.startswith(
        "queue evaluation: 1 job waits for 3 GPUs; ml/eval-0 is pending because the limit of queue evaluation"
    )
    assert (
        "1. raise the limit of queue evaluation to 3 GPUs; then ml/train-2 and ml/train-1 have to make room"
        in found.stdout
    )
    assert allot("explain", "queue", "training", *DUMP).code == 0
    missing = allot("explain", "queue/serch", *DUMP)
    assert (missing.code, missing.stderr) == (1, "error: queue serch: not found\nhint: did you mean search?\n")


def test_what_waits_is_planned_without_a_manifest() -> None:
    found = allot("plan", "--raise", "evaluation:gpu=2", *DUMP)
    assert found.code == 0
    assert "raise evaluation:gpu=2   2         2" in found.stdout
    (value,) = allot("plan", "--raise", "evaluation:gpu=2", *DUMP, "-o", "json").lines
    assert (value["now"]["starting"], value["changed"]["starting"]) == (1, 2)
    assert allot("plan", "--raise", "nobody:gpu=2", *DUMP).code == 1


def test_there_is_nothing_to_plan_without_a_manifest_and_queues() -> None:
    found = allot("plan", "-f", "examples/cluster")
    assert found.code == 2
    assert "expected a MANIFEST, or a cluster with queues" in found.stderr


def test_without_queues_that_is_said() -> None:
    assert "There are no queues." in allot("queues", "-f", "examples/cluster").stdout


def test_definitions_can_be_printed_without_a_cluster() -> None:
    found = allot("install", "crds", "--print")
    names = {document["metadata"]["name"] for document in yaml.safe_load_all(found.stdout)}
    assert {"queues.scheduling.run.ai", "queues.scheduling.volcano.sh"} <= names
