// @ts-check
// Tables of any length: only the rows that can be seen are there. Sorted, filtered, walked through by keyboard, saved as a file.
import { download, h, plural, say } from "./dom.js";

const NATURAL = new Intl.Collator("en", { numeric: true });
const ROW = 34, MARGIN = 12, ALL_BELOW = 120;

/** Words that all must occur, and those with ! in front that must not. @param {string} text */
export function matcher(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = words.filter((word) => !word.startsWith("!")), refused = words.filter((word) => word.startsWith("!") && word.length > 1).map((word) => word.slice(1));
  return (/** @type {string} */ hay) => wanted.every((word) => hay.includes(word)) && !refused.some((word) => hay.includes(word));
}

/**
 * columns: {title, cell(key, row) → element or text, value(key, row) → what it is sorted and saved by, wide?: only where there is room, size?}
 */
export class List {
  /** @param {{caption: string, columns: any[], name: string, empty: string, params: any, set: (params: any) => void, open?: (key: string) => string, text?: (key: string, row: any) => string, extra?: any[], keep?: (key: string, row: any) => boolean, order?: (key: string, row: any) => any}} options */
  constructor(options) {
    this.options = options;
    /** @type {[string, any][]} */
    this.rows = [];
    this.source = new Map();
    this.sort = options.params.sort || "";
    const filter = this.filter = h("input", { type: "search", value: options.params.q || "", placeholder: "Filter: words, !not", "aria-label": `Filter ${options.caption}`, spellcheck: "false",
      oninput: () => { options.set({ q: filter.value }); this.refresh(); } });
    this.count = h("span", { class: "count" });
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.table = h("table", { class: "list" }, h("caption", { class: "unseen" }, options.caption),
      h("colgroup", {}, ...options.columns.map((column) => h("col", { class: `${column.size || ""} ${column.wide ? "wide" : ""}` }))),
      h("thead", {}, this.head), this.body);
    this.box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption, onscroll: () => this.draw(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event) }, this.table);
    this.element = h("div", { class: "listing" },
      h("div", { class: "controls" }, filter, ...(options.extra || []), this.count, h("button", { type: "button", class: "small", onclick: () => this.save() }, "CSV"), h("button", { type: "button", class: "small", onclick: () => this.save(true) }, "JSON")), this.box);
    this.drawHead();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
  }

  drawHead() {
    const [by, down] = this.sort.startsWith("-") ? [this.sort.slice(1), true] : [this.sort, false];
    this.head.replaceChildren(...this.options.columns.map((column) => {
      const mine = column.title === by;
      return h("th", { scope: "col", class: column.wide ? "wide" : "", "aria-sort": mine ? (down ? "descending" : "ascending") : undefined },
        h("button", { type: "button", onclick: () => { this.sort = mine && !down ? `-${column.title}` : column.title; this.options.set({ sort: this.sort }); this.drawHead(); this.refresh(); this.head.querySelectorAll("button")[this.options.columns.indexOf(column)].focus(); } },
          column.title, mine ? (down ? " ↓" : " ↑") : ""));
    }));
  }

  /** @param {Map<string, any>} source */
  show(source) { this.source = source; this.refresh(); }

  refresh() {
    const { columns, text, keep } = this.options;
    const matches = matcher(this.filter.value);
    const hay = text || ((/** @type {string} */ key, /** @type {any} */ row) => `${key} ${columns.map((column) => column.value(key, row)).join(" ")}`);
    const any = this.filter.value.trim() !== "";
    this.rows = [...this.source].filter(([key, row]) => (!keep || keep(key, row)) && (!any || matches(hay(key, row).toLowerCase())));
    const down = this.sort.startsWith("-"), column = columns.find((each) => each.title === (down ? this.sort.slice(1) : this.sort));
    const value = column ? column.value : this.options.order || ((/** @type {string} */ key) => key);
    const keyed = this.rows.map((row) => /** @type {const} */ ([value(row[0], row[1]), row]));
    const plain = (/** @type {any} */ a, /** @type {any} */ b) => (a < b ? -1 : a > b ? 1 : 0);
    // node-10 comes after node-9, as long as the list is short enough to be sorted so in no time.
    const order = keyed.length > 3000 ? plain : (/** @type {any} */ a, /** @type {any} */ b) => (typeof a === "string" && typeof b === "string" ? NATURAL.compare(a, b) : plain(a, b));
    keyed.sort(([a, x], [b, y]) => order(a, b) || order(x[0], y[0]));
    this.rows = keyed.map(([, row]) => row);
    if (down) this.rows.reverse();
    const all = this.source.size;
    this.count.textContent = this.rows.length === all ? plural(all, "row") : `${this.rows.length.toLocaleString("en")} of ${plural(all, "row")}`;
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.draw(true);
  }

  draw(anew = false) {
    const { rows, box } = this;
    const whole = rows.length <= ALL_BELOW;
    const first = whole ? 0 : Math.max(0, Math.floor(box.scrollTop / ROW) - MARGIN);
    const last = whole ? rows.length : Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + MARGIN);
    if (!anew && first === this.first && last === this.last) return;
    this.first = first; this.last = last;
    const focused = document.activeElement?.closest?.("tr[data-key]")?.getAttribute("data-key");
    const spacer = (/** @type {number} */ count) => (count > 0 ? h("tr", { "aria-hidden": "true", class: "space" }, h("td", { colspan: this.options.columns.length, style: { height: `${count * ROW}px` } })) : null);
    const parts = rows.slice(first, last).map(([key, row], place) => this.row(key, row, first + place));
    if (!rows.length) parts.push(h("tr", {}, h("td", { colspan: this.options.columns.length, class: "empty" }, h("span", {}, this.source.size ? "Nothing matches the filter." : this.options.empty))));
    this.body.replaceChildren(...[spacer(first), ...parts, spacer(rows.length - last)].filter(Boolean));
    if (focused) this.body.querySelector(`tr[data-key="${CSS.escape(focused)}"] a`)?.focus();
  }

  /** @param {string} key @param {any} row @param {number} place */
  row(key, row, place) {
    const { columns, open } = this.options;
    return h("tr", { "data-key": key, "aria-rowindex": place + 2 }, ...columns.map((column, index) => {
      const content = column.cell ? column.cell(key, row) : String(column.value(key, row) ?? "");
      const text = index === 0 && open ? h("a", { href: open(key) }, content) : content;
      const title = typeof content === "string" && content.length > 18 ? content : undefined;
      return index === 0 ? h("th", { scope: "row", title }, text) : h("td", { class: column.wide ? "wide" : "", title }, text);
    }));
  }

  /** j and k walk through the rows. @param {KeyboardEvent} event */
  key(event) {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || !this.rows.length) return;
    event.preventDefault();
    const current = this.rows.findIndex(([key]) => key === document.activeElement?.closest?.("tr")?.getAttribute("data-key"));
    const next = Math.max(0, Math.min(this.rows.length - 1, current < 0 ? 0 : current + step));
    if (this.rows.length > ALL_BELOW) { this.box.scrollTop = Math.max(0, (next - 3) * ROW); this.draw(); }
    this.body.querySelector(`tr[data-key="${CSS.escape(this.rows[next][0])}"] a`)?.focus();
  }

  save(json = false) {
    const { columns, name } = this.options;
    download(name, columns.map((column) => column.title), this.rows.map(([key, row]) => columns.map((column) => column.value(key, row))), json);
    say(`${plural(this.rows.length, "row")} saved`);
  }

  end() { this.observer.disconnect(); }
}
