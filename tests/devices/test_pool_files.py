"""Pools as text and as files: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.core.autoscaling.pools import MILLION
from allot.devices.catalogue import find_profile
from allot.devices.pool_files import PoolFile, as_pool, parse_pools, price_table
from allot.reading.errors import Unreadable

WHOLE = """\
pools:
- name: a100-80
  machine: a2-ultragpu-1g
  min: 1
  max: 2
  price: 5.07
  spot: true
  labels: {team: a}
  provisioning: {boot: 1m, driver: 5s}
  stock: 3
  windows: ["10m-25m: 0"]
  faults: {failing: 0.1, reclaimsPerHour: 2}
cloud: {seed: 7, timeFactor: 20, quota: 8}
"""


def test_a_pool_as_text_and_as_a_file(tmp_path: Path) -> None:
    """Both say the same."""
    (tmp_path / "pools.yaml").write_text(WHOLE)
    found = parse_pools((str(tmp_path / "pools.yaml"), "l4=g2-standard-4,max=3,price=0.5,boot=10s"), "--pool")
    first, second = found.pools
    assert (first.name, first.min, first.max, first.price_millionths) == ("a100-80", 1, 2, 5_070_000)
    assert (first.provisioning.boot_s, list(first.stock_windows())) == (60.0, [(600.0, 1500.0, 0)])
    assert (second.machine, second.max, second.price_millionths) == ("g2-standard-4", 3, MILLION // 2)
    assert second.provisioning.boot_s == 10.0
    assert (found.cloud.seed, found.cloud.time_factor, found.cloud.quota) == (7, 20.0, 8)
    pool = as_pool(first, size=1)
    assert pool.room == 1
    assert pool.template.node.metadata.labels["team"] == "a"
    assert pool.template.drivers == ("gpu.nvidia.com",)


def test_prices_are_of_machines_that_there_are() -> None:
    """And default to nothing."""
    for name in price_table():
        assert find_profile(name).name == name
    assert parse_pools(("p=t4x2",), "--pool").pools[0].price_millionths == 0
    assert parse_pools(("p=a2-ultragpu-1g",), "--pool").pools[0].price_millionths == 5_070_000


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("p=g2-standard-5", "machine 'g2-standard-5': unknown machine shape", "g2-standard-4"),
        ("p=g2-standard-4,min=3,max=2", "min 3 is above max 2", "max=3 or more, or min=2 or less"),
        ("p=g2-standard-4,initial=20", "initial 20 is not between min 0 and max 10", "initial=10"),
        ("p=g2-standard-4,mxa=2", "'mxa=2' is unknown", 'did you mean "max"?'),
        ("p=g2-standard-4,min=x", "min: 'x' is not a number of nodes", ""),
        ("p=g2-standard-4,max=99999999", "max", ""),
        ("p=g2-standard-4,price=free", "price 'free': expected an amount per hour", ""),
        ("p=g2-standard-4,boot=soon", "'soon' is not a duration such as 40s", ""),
        ("P_=g2-standard-4", "pool name 'P_'", ""),
        ("p=g2-standard-4,computeclass=c", "'computeclass=c' is unknown", 'did you mean "computeClass"?'),
        ("p=g2-standard-4,computeClass=a b", "computeClass 'a b' is not the value of a label", ""),
        ("g2-standard-4", "expected NAME=MACHINE", ""),
        ("=g2-standard-4", "expected NAME=MACHINE", ""),
    ],
)
def test_what_makes_no_sense_is_named(text: str, said: str, hint: str) -> None:
    """With the nearest that does."""
    with pytest.raises(Unreadable) as caught:
        parse_pools((text,), "--pool")
    assert said in str(caught.value)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("max: 2", "max: 0"), "line 4: min 1 is above max 0"),
        (("a2-ultragpu-1g", "a2-ultragpu-1"), "line 3: machine 'a2-ultragpu-1': unknown machine shape"),
        (("spot: true", "sport: true"), "line 7: unknown field 'sport'"),
        (("10m-25m: 0", "never"), "line 11: window 'never'"),
        (("timeFactor: 20", "timeFactor: 0"), "line 13"),
        (("failing: 0.1", "failing: 2"), "line 12"),
        (
            ("quota: 8", "reservations: {r: {machine: a3-high, count: 1}}"),
            "line 13: machine 'a3-high': unknown machine shape",
        ),
    ],
)
def test_a_file_that_makes_no_sense_names_the_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    """And what was expected."""
    path = tmp_path / "pools.yaml"
    path.write_text(WHOLE.replace(*change))
    with pytest.raises(Unreadable, match=r"pools\.yaml") as caught:
        parse_pools((str(path),), "--pool")
    assert said in str(caught.value)


def test_names_are_unique(tmp_path: Path) -> None:
    """Also over files."""
    with pytest.raises(Unreadable, match="two pools are called 'p'"):
        parse_pools(("p=t4", "p=l4"), "--pool")
    with pytest.raises(Unreadable, match="no such file"):
        parse_pools((str(tmp_path / "none.yaml"),), "--pool")
    assert parse_pools((), "--pool") == PoolFile()
