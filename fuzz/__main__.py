"""`python -m fuzz`: fuzz a server of allot, or send a case again."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fuzz import corpus, findings, targets
from fuzz.campaign import MEMORY_REQUESTS_MIN, ROUND_REQUESTS, Campaign
from fuzz.cleaning import HISTORY_BYTES, HISTORY_SLACK_BYTES, Cleaner, fill_history
from fuzz.sequences import STEPS, Sequences
from fuzz.targets import Target
from fuzz.wire import Link

_console = Console(stderr=True)
Fuzz = Callable[[Target, Campaign, int, int], Coroutine[None, None, None]]
Start = Callable[[Path], AbstractContextManager[Target]]


@click.command()
@click.option("-n", "--requests", default=60_000, show_default=True, help="How many requests are sent at least.")
@click.option("--seed", default=1, show_default=True, help="The same seed makes the same requests.")
@click.option("--target", type=click.Choice(["apiserver", "node"]), default="apiserver", show_default=True)
@click.option(
    "--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Send the case of this file again."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/fuzz"),
    show_default=True,
    help="Where cases that failed are written.",
)
def main(requests: int, seed: int, target: str, replay: Path | None, out: Path) -> None:
    """Mutate valid requests and send them to a server of its own. Exit code 1 if something is found."""
    # Stopped in any way, the server is stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if replay is not None:
        target = findings.read(replay)[0]
    start, fuzz = _TARGETS[target]
    with tempfile.TemporaryDirectory(prefix="allot-fuzz-") as folder, start(Path(folder)) as running:
        campaign = Campaign(running)
        if replay is not None:
            uvloop.run(_replay(running, campaign, replay))
        else:
            uvloop.run(fuzz(running, campaign, requests, seed))
    for finding in campaign.findings:
        path = findings.write(out, finding, seed, target)
        _console.print(f"{finding.sort}: {finding.text[-600:]}", markup=False)
        _console.print(f"  make fuzz REPLAY={path}", markup=False)
    _summary(campaign)
    sys.exit(bool(campaign.findings) or campaign.grows)


async def _fuzz_apiserver(target: Target, campaign: Campaign, requests: int, seed: int) -> None:
    async with campaign.asking() as ask:
        await corpus.furnish(ask)
        known = await corpus.collect(ask, seed)
        _console.print(
            f"{known.with_examples()} of {len(known.resources)} kinds have examples, {len(known.donors)} in all"
        )
        cleaner = Cleaner(ask, known)
        await cleaner.remember()
        plan = Sequences(known, seed)
        if requests < MEMORY_REQUESTS_MIN:
            await _rounds(target, campaign, plan, requests, cleaner.clean)
        else:
            await fill_history(ask, known, HISTORY_BYTES)

            async def clean() -> int:
                count = await cleaner.clean()
                await fill_history(ask, known, HISTORY_SLACK_BYTES)
                return count

            await _rounds(target, campaign, plan, requests, clean)
            # What was sent before is sent again: whatever can be loaded or kept once is there by now.
            campaign.is_warm()
            await _rounds(target, campaign, plan, requests // 2, clean, "sent again for memory")
    await _end(target, campaign)


async def _fuzz_node(target: Target, campaign: Campaign, requests: int, seed: int) -> None:
    assert target.apiserver is not None, "an agent has an API server"
    behind = Campaign(target.apiserver)

    async def nothing_to_clean() -> int:
        return 0

    async with behind.asking() as ask:
        await corpus.furnish(ask)
    plan = Sequences(corpus.of_agent(), seed)
    await _rounds(target, campaign, plan, requests, nothing_to_clean)
    if requests >= MEMORY_REQUESTS_MIN:
        campaign.is_warm()
        await _rounds(target, campaign, plan, requests // 2, nothing_to_clean, "sent again for memory")
    await _end(target, campaign)


async def _rounds(
    target: Target,
    campaign: Campaign,
    plan: Sequences,
    requests: int,
    clean: Callable[[], Awaitable[int]],
    what: str = "fuzzed",
) -> None:
    first, objects = 0, 0
    with Live(console=_console, transient=True) as live:
        while first * STEPS < requests and target.is_alive:
            count = min(ROUND_REQUESTS, requests - first * STEPS) // STEPS or 1
            running = asyncio.create_task(campaign.round(plan, first, count))
            while not running.done():
                live.update(_progress(campaign, f"{first * STEPS}/{requests} {what}", objects))
                await asyncio.wait([running], timeout=0.5)
            running.result()
            first += count
            if not _console.is_terminal:
                told = _progress(campaign, f"{first * STEPS}/{requests} {what}", objects)
                _console.print(told, soft_wrap=True, highlight=False)
            if target.is_alive:
                objects = await clean()
                campaign.look_at_memory()


async def _end(target: Target, campaign: Campaign) -> None:
    if target.is_alive:
        await campaign.confirm_slow()
        await campaign.shrink_findings()


def _progress(campaign: Campaign, done: str, objects: int) -> str:
    statuses = " ".join(f"{status or 'none'}:{count}" for status, count in sorted(campaign.statuses.items()))
    slowest = campaign.slowest[0].wall_s if campaign.slowest else 0.0
    memory = campaign.memory[-1][1] >> 20 if campaign.memory else 0
    return (
        f"{done}  {campaign.sent} in all, {campaign.rate:.0f}/s  {statuses}  slowest {slowest:.2f} s  {memory} MiB  "
        f"{objects} objects  {len(campaign.findings)} findings"
    )


async def _replay(target: Target, campaign: Campaign, path: Path) -> None:
    _, case, before = findings.read(path)
    async with Campaign(target.apiserver or target).asking() as ask:
        await corpus.furnish(ask)
    links: dict[str, Link] = {}
    for number, each in enumerate((*before, case)):
        answer = await campaign.send(each, links, before[:number])
        _console.print(f"{each.method} {each.pieces[0][:120]!r}: {answer.status} {answer.body[:300]!r}", markup=False)
    for link in links.values():
        link.close()
    await campaign.confirm_slow()


def _summary(campaign: Campaign) -> None:
    table = Table(title=f"{campaign.sent} requests, {campaign.rate:.0f} a second, {len(campaign.findings)} findings")
    table.add_column("status")
    table.add_column("answers", justify="right")
    for status, count in sorted(campaign.statuses.items()):
        table.add_row(str(status) if status else "none due", str(count))
    _console.print(table)
    for slow in campaign.slowest[:5]:
        _console.print(
            f"{slow.wall_s:.2f} s, {slow.cpu_s:.2f} s of processor: {slow.case.number} {slow.case.pieces[0][:100]!r}",
            markup=False,
        )
    if campaign.memory:
        first, middle, last = campaign.memory[0], campaign.memory[len(campaign.memory) // 2], campaign.memory[-1]
        told = ", ".join(f"{size / 2**20:.0f} MiB after {sent}" for sent, size in (first, middle, last))
        growth = campaign.growth()
        verdict = (
            "too few requests to judge" if growth is None else f"{growth:+.1%} while the first half was sent again"
        )
        _console.print(f"memory: {told}; {verdict}")


_TARGETS: dict[str, tuple[Start, Fuzz]] = {
    "apiserver": (targets.apiserver, _fuzz_apiserver),
    "node": (targets.node, _fuzz_node),
}

if __name__ == "__main__":
    main()
