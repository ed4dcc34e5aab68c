"""The kit passes drivers that do what they should, and catches those that do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allot.driver.conformance.checks import ALL_CHECKS
from cli.command import allot

DICE = Path(__file__).resolve().parents[2] / "examples" / "drivers" / "dice.py"


def run_kit(driver: Path | str, *arguments: str) -> tuple[int, list[dict[str, str]], str]:
    """In this process; only the driver has one of its own."""
    result = allot("driver", "test", str(driver), "-o", "json", *arguments)
    return result.code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_there_are_enough_checks_and_each_has_its_name() -> None:
    names = [(check.group, check.name) for check in ALL_CHECKS]
    assert len(set(names)) == len(names) >= 40


def test_checks_can_be_listed() -> None:
    result = allot("driver", "test", str(DICE), "--list", "-o", "json")
    assert len(result.stdout.splitlines()) == len(ALL_CHECKS)


def test_a_driver_that_is_not_there_is_told() -> None:
    result = allot("driver", "test", "no/such/driver.py")
    assert (result.code, result.stderr) == (2, "error: driver no/such/driver.py: no such file\n")


def test_a_module_that_is_no_driver_is_told(tmp_path: Path) -> None:
    module = tmp_path / "empty.py"
    module.write_text("")
    result = allot("driver", "test", str(module))
    assert result.code == 2 and "does it call run()?" in result.stderr


@pytest.mark.slow
# It starts the driver three dozen times.
@pytest.mark.timeout(600)
def test_the_example_passes_every_check() -> None:
    code, findings, errors = run_kit(DICE)
    assert [finding for finding in findings if finding["verdict"] != "pass"] == []
    assert (code, len(findings)) == (0, len(ALL_CHECKS)), errors


_WHOLE = """
from allot.driver import Driver, Edits, PrepareError, Prepared, device, run
class Chips(Driver):
    name = "chips.example.com"
    def devices(self):
        return [device(f"chip-{number}") for number in range(4)]
    def prepare(self, claim):
        if len(claim.devices) < 4:
            raise PrepareError("a claim must hold all chips")
        return [Prepared(each, Edits(env={"CHIPS": "4"})) for each in claim.devices]
if __name__ == "__main__":
    run(Chips())
"""


@pytest.mark.slow
@pytest.mark.parametrize("only", ["several claims in one call are", "several streams at once"])
def test_what_a_driver_does_not_do_is_skipped(only: str, tmp_path: Path) -> None:
    module = tmp_path / "chips.py"
    module.write_text(_WHOLE)
    code, findings, errors = run_kit(module, "--whole-claims", "--only", only)
    assert (code, [finding["verdict"] for finding in findings]) == (0, ["skip"]), errors


@pytest.mark.slow
def test_a_driver_gets_the_objects_and_parameters_that_it_needs() -> None:
    needs = ("--needs", str(DICE.with_name("compute-domain-needs.yaml")))
    own = ("--", "--profile", "gb200-nvl72", "--driver-namespace", "default")
    code, findings, errors = run_kit("allot.devices.computedomain", *needs, "--only", "can hold all devices", *own)
    assert (code, [finding["verdict"] for finding in findings]) == (0, ["pass"]), errors


@pytest.mark.parametrize("text", ["parameters: 3", "[1]", "kind: Pod", "apiVersion: v1\nkind: Pod\nmetadata: {}"])
def test_needs_that_are_neither_objects_nor_parameters_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "needs.yaml"
    file.write_text(text)
    result = allot("driver", "test", str(DICE), "--needs", str(file))
    assert result.code == 2 and "expected objects with apiVersion, kind and metadata.name" in result.stderr


# What is broken, the code that breaks it, and the check that must notice.
BROKEN = {
    "leaves CDI files": ("CdiFiles.remove_claim = lambda self, uid: None", "the claim's CDI files are removed"),
    "keeps nothing on disk": (
        "Checkpoint.put = lambda self, record: self._records.__setitem__(record.uid, record)",
        "killed after a claim was prepared, it still guards",
    ),
    "has no guard": ("preparing.find_overlap = lambda *given: ''", "a second claim for a device in use"),
    "answers alternatives": ("service.base_request = lambda request: request", "an alternative is answered by"),
    "takes any parameters": ("preparing.decode_configs = lambda *given: ()", "parameters of an unknown kind"),
    "does not own its slices": ("SlicePublisher._find_owner = nobody", "every slice belongs to the node object"),
    "does not repair": ("SlicePublisher.sync_after = only_now", "a deleted slice is published again"),
    "dies of SIGTERM": ("run_module.stop_on_signals = lambda stop: None", "SIGTERM ends it with exit code 0"),
    "speaks once": ("health_module._REPORTS_PER_TIMEOUT = 0.001", "it reports again within the timeout"),
    "forgets no boot": ("plugin.read_boot_id = lambda path: 'same'", "after a reboot nothing is prepared"),
}
_BROKEN = """
import sys
sys.path.insert(0, {folder!r})
import allot.driver.health as health_module
import allot.driver.plugin as plugin
import allot.driver.preparing as preparing
import allot.driver.service as service
from allot.driver.cdi_files import CdiFiles
from allot.driver.checkpoint import Checkpoint
from allot.driver.publishing import SlicePublisher
run_module = sys.modules["allot.driver.run"]
async def nobody(self):
    return None
whenever = SlicePublisher.sync_after
def only_now(self, seconds):
    if seconds == 0:
        whenever(self, seconds)
{code}
from dice import Dice
class Broken(Dice):
    health_timeout_s = 2.0
if __name__ == "__main__":
    run_module.run(Broken())
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", sorted(BROKEN))
def test_a_driver_that_is_broken_is_caught(what: str, tmp_path: Path) -> None:
    code, check = BROKEN[what]
    module = tmp_path / "broken.py"
    module.write_text(_BROKEN.format(folder=str(DICE.parent), code=code))
    exit_code, findings, errors = run_kit(module, "--only", check)
    assert [finding["verdict"] for finding in findings] == ["fail"], errors
    assert exit_code == 1
