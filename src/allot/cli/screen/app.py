"""The screen: tabs of pages, a table with a cursor, and the details of the selected row."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from allot.cli.screen.pages import (
    LEGEND,
    PAGES,
    Cell,
    Line,
    Page,
    Row,
    capacity_rows,
    matches,
    object_of,
    question_of,
    queue_rows,
    signs_of,
)
from allot.dashboard.analysis import TooMany
from allot.dashboard.following import BY_KIND, Followed, Unknown, wait_for_news
from allot.yaml_values.writer import yaml_text

# More rows than a user can read; a filter finds the others.
LINES_MAX = 1000
_CELL_MAX = 160
# Narrower than that a column says nothing: then the table scrolls.
_LAST_MIN = 16
# How long to wait for news before ages are drawn again.
_AGES_EVERY_S = 10.0
_ROWS = {"queues": queue_rows, "capacity": capacity_rows}
HELP = """\
1 to 8, Tab   the pages
/             show only rows with these words; Esc shows all again
Enter         why does it wait, what does it hold: the answer of allot explain
y             the object as YAML
Esc           close what is open
q             leave
"""


class Screen(App[None]):
    """Shows a cluster until q is pressed."""

    CSS = """
    #summary, #note { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #note { color: $text-muted; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.open { display: block; }
    DataTable { height: 1fr; }
    #detail { display: none; height: 50%; border-top: solid $primary; padding: 0 1; }
    #detail.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("y", "yaml", "YAML"),
        Binding("question_mark", "keys", "Keys"),
        Binding("escape", "close", "Close"),
        Binding("q", "quit", "Quit"),
        Binding("tab", "turn(1)", "Next page", show=False, priority=True),
        Binding("shift+tab", "turn(-1)", "Page before", show=False, priority=True),
        *(Binding(str(number), f"page('{page.name}')", page.title, show=False) for number, page in enumerate(PAGES, 1)),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "allot"

    def __init__(self, followed: Followed) -> None:
        super().__init__()
        self._followed = followed
        self._page = PAGES[0]
        self._words = ""
        self._lines: dict[str, Line] = {}
        self._rows: dict[str, Row] = {}
        self._last_max = _CELL_MAX
        # The open details, so that a late answer does not reopen them.
        self._open = 0

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Static(id="summary")
        yield Tabs(*(Tab(f"{number} {page.title}", id=page.name) for number, page in enumerate(PAGES, 1)))
        yield Input(placeholder="words that a row must have", id="filter", compact=True)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="note")
        with VerticalScroll(id="detail"):
            yield Static(id="answer", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start to follow the cluster."""
        self.query_one(Tabs).can_focus = False
        self.query_one(DataTable).focus()
        self.run_worker(self._follow(), exclusive=True, group="follow")

    async def _follow(self) -> None:
        while True:
            news = self._followed.next_news
            await self._draw()
            await wait_for_news(news, _AGES_EVERY_S)

    # --- drawing ---

    async def _draw(self) -> None:
        self._summarise()
        page = self._page
        rows = dict(await self._found(page))
        if page is not self._page:
            return  # another page was chosen meanwhile, which draws itself
        lines = [line for line in page.lines(rows.items(), self._now()) if matches(line, self._words)]
        self._rows = rows
        self._last_max = self._room(page, lines[:LINES_MAX])
        self._fill(page, lines[:LINES_MAX])
        self.query_one("#note", Static).update(self._note(page, len(rows), len(lines)))

    def _room(self, page: Page, lines: list[Line]) -> int:
        """How much of the last column fits beside the others. Enter shows the rest."""
        widths = [
            max([len(column), *(min(len(line.cells[place][0]), _CELL_MAX) for line in lines)])
            for place, column in enumerate(page.columns[:-1])
        ]
        # A column has a blank on each side; the scroll bar takes two more.
        room = self.query_one(DataTable).size.width - sum(width + 2 for width in widths) - 4
        return max(room, _LAST_MIN)

    def on_resize(self) -> None:
        """The last column fits again."""
        self._lines = {}
        self.run_worker(self._draw(), exclusive=True, group="draw")

    def _now(self) -> float:
        return self._followed.model.what_if.taken_at or self._followed.clock.seconds()

    async def _found(self, page: Page) -> Iterator[tuple[str, Row]]:
        if not page.asks:
            rows: dict[str, Row] = msgspec.json.decode(self._followed.model.tables[page.table].all_rows())
            return iter(rows.items())
        answer = await self._ask(page.table, {})
        if "error" in answer:
            self.notify(str(answer["error"]), severity="error")
            return iter(())
        return _ROWS[page.table](answer)

    async def _ask(self, name: str, arguments: Mapping[str, str]) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = msgspec.json.decode((await self._followed.analysis.ask(name, arguments)).data)
        except TooMany as error:
            return {"error": str(error)}
        answer: Mapping[str, Any] = found.get("answer") or {"error": found.get("error", "")}
        return answer

    def _summarise(self) -> None:
        model = self._followed.model
        sample = model.sample(0.0)
        total = sample.free + sample.partly + sample.in_use + sample.unavailable
        # A dump is called by its path, of which the end says most.
        title = self._followed.title.rpartition("/")[2]
        text = Text.assemble(
            (title, "bold"),
            "" if self._followed.is_live else (" (a dump)", "dim"),
            f"  {len(model.tables['nodes'])} nodes  {sample.free} of {total} devices free  ",
            (f"{sample.unavailable} unavailable  ", "yellow" if sample.unavailable else ""),
            (f"{sample.waiting} pods wait", "yellow" if sample.waiting else ""),
            f"  {sample.running} run",
        )
        if self._followed.stale:
            text.append(f"  {self._followed.stale}", "red")
        self.query_one("#summary", Static).update(text)

    def _note(self, page: Page, there: int, found: int) -> str:
        if not found:
            return f'No row contains "{self._words}".' if self._words and there else page.empty
        if found > LINES_MAX:
            return f"The first {LINES_MAX:,} of {found:,}; / finds the others."
        return LEGEND if page.name == "cluster" else ""

    def _fill(self, page: Page, lines: list[Line]) -> None:
        """Update the table: only changed cells if the rows are the same, else all of them; the cursor stays."""
        table = self.query_one(DataTable)
        keys = [line.key for line in lines]
        if list(self._lines) == keys and len(table.ordered_columns) == len(page.columns):
            for line in lines:
                if line.cells != self._lines[line.key].cells:
                    for column, cell in zip(page.columns, line.cells, strict=True):
                        table.update_cell(line.key, column, self._text(line, cell), update_width=True)
        else:
            chosen, place = self._chosen(), table.cursor_row
            table.clear(columns=True)
            for column in page.columns:
                table.add_column(column, key=column)
            for line in lines:
                table.add_row(*(self._text(line, cell) for cell in line.cells), key=line.key)
            if lines:
                table.move_cursor(row=keys.index(chosen) if chosen in keys else min(place, len(keys) - 1))
        self._lines = {line.key: line for line in lines}

    def _text(self, line: Line, cell: Cell) -> Text:
        text, style = cell
        if style == "devices":
            signs = signs_of(self._rows[line.key])[: len(text)]
            return Text.assemble(*signs, "…" if text.endswith("…") else "", no_wrap=True)
        most = self._last_max if cell is line.cells[-1] else _CELL_MAX
        shown = text if len(text) <= most else f"{text[: most - 1]}…"
        return Text(shown.replace("\n", " "), style, no_wrap=True, overflow="ellipsis")

    def _chosen(self) -> str:
        """The key of the row with the cursor."""
        table = self.query_one(DataTable)
        keys = list(self._lines)
        return keys[table.cursor_row] if 0 <= table.cursor_row < len(keys) else ""

    # --- keys ---

    async def action_page(self, name: str) -> None:
        """Another page."""
        self.query_one(Tabs).active = name

    def action_turn(self, steps: int) -> None:
        """The next or previous page."""
        place = (PAGES.index(self._page) + steps) % len(PAGES)
        self.query_one(Tabs).active = PAGES[place].name

    async def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """A page was chosen, by key or mouse."""
        chosen = next(page for page in PAGES if page.name == event.tab.id)
        if chosen is not self._page:
            self._page = chosen
            self._fill(chosen, [])
            self.query_one("#note", Static).update("Looking …" if chosen.asks else "")
            self.action_close()
            self.run_worker(self._draw(), exclusive=True, group="draw")

    def action_filter(self) -> None:
        """Open the filter."""
        words = self.query_one("#filter", Input)
        words.add_class("open")
        words.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter rows while typing."""
        self._words = event.value
        self.run_worker(self._draw(), exclusive=True, group="draw")

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        """Back to the rows."""
        self.query_one(DataTable).focus()

    def action_close(self) -> None:
        """Close the details, or else the filter."""
        detail, words = self.query_one("#detail"), self.query_one("#filter", Input)
        self._open += 1
        if detail.has_class("open"):
            detail.remove_class("open")
        elif words.has_class("open"):
            words.value = ""
            words.remove_class("open")
        self.query_one(DataTable).focus()

    async def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        """Enter: the explanation, or the object itself if it has none."""
        key = self._chosen()
        question = question_of(self._page, key) if key else {}
        if question:
            self.run_worker(self._explain(question), exclusive=True, group="answer")
        elif key:
            self.action_yaml()

    async def _explain(self, question: Mapping[str, str]) -> None:
        opened = self._show("Looking for the reason …")
        answer = await self._ask("explain", question)
        self._show(str(answer.get("text") or answer.get("error")), opened)

    def action_yaml(self) -> None:
        """The object of the row as YAML."""
        key = self._chosen()
        if key:
            self.run_worker(self._yaml(*object_of(self._page, key, self._rows[key])), exclusive=True, group="answer")

    async def _yaml(self, kind: str, namespace: str, name: str) -> None:
        opened = self._show("Reading …")
        known = BY_KIND.get(kind)
        if known is None:
            self._show(f"{kind or 'This row'} cannot be shown as YAML.", opened)
            return
        try:
            found = await self._followed.read(known, namespace, name)
        except Unknown as error:
            self._show(str(error), opened)
        else:
            self._show(await asyncio.to_thread(yaml_text, found), opened)

    def _show(self, text: str, opened: int | None = None) -> int:
        """Show details below the table. opened: what they belong to; ignored if something else was opened or closed since."""
        if opened is None:
            self._open += 1
        elif opened != self._open:
            return opened
        detail = self.query_one("#detail", VerticalScroll)
        detail.add_class("open")
        detail.scroll_home(animate=False)
        self.query_one("#answer", Static).update(text)
        return self._open

    def action_keys(self) -> None:
        """What the keys do."""
        self._show(HELP)
