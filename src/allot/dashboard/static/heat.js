// @ts-check
// Every device of the cluster on one canvas. A card is a node; its rows are NUMA nodes, gaps part PCIe roots, the rail on its left is its
// NVLink domain. Only what can be seen is drawn, and only cards that changed are laid out anew.
import { h, say } from "./dom.js";

export const STATES = { f: "free", p: "partly in use", u: "in use", b: "blocked", x: "unavailable" };
// Okabe and Ito's colours, told apart by nearly everybody.
export const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900"];
// Of how much of its time a device is used: from here on, in words, and the name of its colour.
export const USES = /** @type {[number, string, string][]} */ ([[0, "below 5 %", "use-0"], [5, "5 to 25 %", "use-1"], [25, "25 to 50 %", "use-2"], [50, "50 to 75 %", "use-3"], [75, "75 % or more", "use-4"]]);
const HEAD = 26, PAD = 6, BETWEEN = 18, SIZES = { s: 6, m: 13, l: 22, x: 34 };

/** @param {string} text */
function hash(text) {
  let found = 7;
  for (let place = 0; place < text.length; place += 1) found = (found * 31 + text.charCodeAt(place)) >>> 0;
  return found;
}
/** A text by which node-9 comes before node-10, quicker than a collator. @param {string} text */
const ordered = (text) => text.replace(/\d+/g, (digits) => digits.padStart(12, "0"));
/** @param {string} a @param {string} b */
const plain = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
/** @param {string} text */
export const colourOf = (text) => COLOURS[hash(text) % COLOURS.length];

/** Whether a cell is in one of these states; t and h stand for taints and trouble. @param {any} cell @param {string} states */
export const isWanted = (cell, states) => !states || states.includes(cell.s) || (states.includes("t") && Boolean(cell.t)) || (states.includes("h") && Boolean(cell.x));

/** A cell with its pool. */
class Found {
  /** @param {any} cell @param {any} pool */
  constructor(cell, pool) { this.cell = cell; this.pool = pool; }
  get model() { return this.cell.m || this.pool.m; }
  get name() { return `${this.pool.driver}/${this.pool.pool}/${this.cell.n}`; }
}

/** The cells of a node, in rows by driver and NUMA node, each row by PCIe root: in this order they come. @param {any} row @returns {Found[][]} */
export function cellsOf(row) {
  /** @type {Map<string, Found[]>} */
  const rows = new Map();
  for (const pool of row.dev) {
    let last, cells;
    for (const cell of pool.d) {
      if (!cells || cell.u !== last) {
        last = cell.u;
        const key = `${pool.driver}\0${last ?? ""}`;
        cells = rows.get(key);
        if (!cells) rows.set(key, (cells = []));
      }
      cells.push(new Found(cell, pool));
    }
  }
  return [...rows.values()];
}

/** What a cell is, in words. @param {string} node @param {any} found */
export function described(node, { cell, model, name }) {
  const parts = [`${node}, ${cell.n}: ${model}`];
  if (cell.u !== undefined) parts.push(`NUMA ${cell.u}`);
  if (cell.p !== undefined) parts.push(`PCIe root ${cell.p}`);
  parts.push(cell.f ? `${Math.round(cell.f * 100)} % in use` : /** @type {any} */ (STATES)[cell.s]);
  if (cell.g !== undefined) parts.push(`${cell.g} % busy`);
  if (cell.h) parts.push(`held by ${cell.h.slice(0, 3).join(", ")}${cell.h.length > 3 ? ` and ${cell.h.length - 3} more` : ""}`);
  if (cell.t) parts.push(`tainted ${cell.t.join(", ")}`);
  if (cell.x) parts.push(cell.x);
  return { text: parts.join(", "), name };
}

export class Heat {
  /** @param {{open: (node: string, name: string) => void}} options */
  constructor({ open }) {
    this.open = open;
    this.cards = new Map();
    /** Names of namespaces or models, by which is coloured. @type {Map<string, string>} */
    this.named = new Map();
    this.settings = { by: "", colour: "state", size: "", keep: (/** @type {string} */ _name, /** @type {any} */ _row) => true, states: "", /** @type {Set<string> | null} */ only: null };
    /** @type {any[]} */
    this.sections = [];
    /** @type {{card: any, row: number, place: number} | null} */
    this.cursor = null;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.tall = h("div", { class: "tall" }, this.canvas);
    this.element = h("div", { class: "heat", tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-label": "Devices by node. Arrow keys move from device to device, Enter opens one. The table says the same.",
      onscroll: () => this.draw(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event), onfocus: () => this.draw(), onblur: () => this.draw(),
      onpointermove: (/** @type {PointerEvent} */ event) => this.hover(event), onpointerleave: () => { this.tip.hidden = true; },
      onclick: (/** @type {PointerEvent} */ event) => { const found = this.at(event); if (found) { this.cursor = found; this.draw(); this.open(found.card.name, this.cell().name); } } }, this.tall, this.tip);
    this.observer = new ResizeObserver(() => { if (this.element.clientWidth !== this.width) this.arrange(); else this.draw(); });
    this.observer.observe(this.element);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => { this.styles = null; this.draw(); };
    this.dark.addEventListener("change", this.recolour);
  }

  end() { this.observer.disconnect(); this.dark.removeEventListener("change", this.recolour); }

  /** @param {Map<string, any>} rows @param {Set<string>} [changed] */
  update(rows, changed) {
    let moved = !changed;
    for (const name of changed || rows.keys()) {
      const row = rows.get(name), before = this.cards.get(name);
      if (!row || !row.dev.length) { moved = this.cards.delete(name) || moved; continue; }
      const card = { name, row, cells: cellsOf(row), group: this.group(row), order: before ? before.order : ordered(name) };
      // A card of another form or group moves those behind it.
      moved = moved || !before || before.group !== card.group || before.cells.length !== card.cells.length || before.cells.some((/** @type {any[]} */ cells, /** @type {number} */ place) => cells.length !== card.cells[place].length);
      if (before && !moved) Object.assign(before, card); else this.cards.set(name, card);
    }
    if (!changed) for (const name of this.cards.keys()) if (!rows.has(name)) this.cards.delete(name);
    if (moved) this.arrange(); else { this.nameColours(); this.draw(); }
  }

  /** @param {any} settings */
  set(settings) {
    Object.assign(this.settings, settings);
    for (const card of this.cards.values()) card.group = this.group(card.row);
    this.arrange();
  }

  /** @param {any} row */
  group(row) {
    const { by } = this.settings;
    if (!by) return "";
    if (by === "model") return row.dev[0]?.m || row.dev[0]?.d[0]?.m || "";
    if (by === "clique") return row.clique || "no NVLink domain";
    if (by === "pool") return row.group || "no pool";
    return (row.labels || {})[by] || `without ${by}`;
  }

  zoom() {
    const { size } = this.settings;
    return size || (this.shown > 600 ? "s" : this.shown > 60 ? "m" : this.shown > 16 ? "l" : "x");
  }

  arrange() {
    const width = this.width = this.element.clientWidth;
    if (!width) return;
    const cards = [...this.cards.values()].filter((card) => this.settings.keep(card.name, card.row));
    this.shown = cards.length;
    cards.sort((a, b) => (a.group === b.group ? plain(a.order, b.order) : plain(ordered(a.group), ordered(b.group))));
    this.nameColours();
    const zoom = this.zoom(), size = /** @type {any} */ (SIZES)[zoom];
    const label = zoom === "s" ? 0 : 16, gap = zoom === "s" ? 1 : 2;
    this.metrics = { zoom, size, label, gap };
    this.sections = [];
    for (const card of cards) {
      let section = this.sections[this.sections.length - 1];
      if (!section || section.name !== card.group) this.sections.push((section = { name: card.group, cards: [], width: 0 }));
      section.cards.push(card);
      for (const cells of card.cells) section.width = Math.max(section.width, this.rowWidth(cells));
    }
    // Groups stand side by side as long as they fit, as words do in a text.
    let left = 0, top = 0, bottom = 0;
    for (const section of this.sections) {
      section.head = this.settings.by ? HEAD : 0;
      const full = width - 2;
      section.cardWidth = Math.min(full, Math.max(section.width + PAD * 2 + 4, zoom === "s" ? 0 : 112));
      section.columns = Math.max(1, Math.min(section.cards.length, Math.floor(full / section.cardWidth)));
      section.wide = Math.min(full, Math.max(section.columns * section.cardWidth, section.head ? section.name.length * 7.5 + 70 : 0));
      if (left && left + section.wide > full) { left = 0; top = bottom; }
      section.left = left;
      section.top = top;
      left += section.wide + BETWEEN;
      // A line is as high as its highest card: one node with many devices does not stretch the others.
      section.tops = [section.head];
      for (let first = 0; first < section.cards.length; first += section.columns) {
        const rows = Math.max(...section.cards.slice(first, first + section.columns).map((/** @type {any} */ card) => card.cells.length));
        section.tops.push(section.tops[section.tops.length - 1] + rows * (size + gap) + label + (zoom === "s" ? 4 : PAD * 2));
      }
      section.bottom = top + section.tops[section.tops.length - 1] + 4;
      bottom = Math.max(bottom, section.bottom);
      section.cards.forEach((/** @type {any} */ card, /** @type {number} */ place) => { card.section = section; card.place = place; });
    }
    this.tall.style.setProperty("height", `${Math.max(40, bottom)}px`);
    if (this.cursor && !this.cards.has(this.cursor.card.name)) this.cursor = null;
    this.draw();
  }

  /** One colour after the other, so that few names never share one. */
  nameColours() {
    const { colour } = this.settings, names = new Set();
    if (colour === "namespace" || colour === "model") for (const card of this.cards.values()) for (const cells of card.cells) for (const { cell, model } of cells) { if (colour === "model") names.add(model); else if (cell.h) names.add(cell.h[0].split("/")[0]); }
    this.named = new Map([...names].sort().map((name, place) => [name, COLOURS[place % COLOURS.length]]));
  }

  /** @param {any[]} cells */
  rowWidth(cells) {
    const { size, gap } = this.metrics;
    return cells.length * (size + gap) + this.roots(cells) * gap * 2;
  }

  /** @param {any[]} cells */
  roots(cells) {
    let found = 0;
    for (let place = 1; place < cells.length; place += 1) if (cells[place].cell.p !== cells[place - 1].cell.p) found += 1;
    return found;
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  paint() {
    if (!this.metrics || !this.element.isConnected) return;
    const { canvas, element } = this, ratio = devicePixelRatio || 1;
    const width = element.clientWidth, height = Math.min(Math.max(element.clientHeight, 40), 4000), top = element.scrollTop;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      canvas.style.setProperty("width", `${width}px`); canvas.style.setProperty("height", `${height}px`);
    }
    const context = canvas.getContext("2d");
    if (!this.styles) {
      const found = getComputedStyle(document.documentElement);
      this.styles = Object.fromEntries(["text", "soft", "line", "panel", "cell-free", "cell-used", "cell-off", "warn", "bad", ...USES.map(([, , name]) => name)].map((name) => [name, found.getPropertyValue(`--${name}`).trim()]));
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.translate(0, -top);
    for (const section of this.sections) {
      if (section.bottom < top || section.top > top + height) continue;
      this.paintSection(context, section, top, height);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {any} section @param {number} top @param {number} height */
  paintSection(context, section, top, height) {
    const styles = /** @type {any} */ (this.styles);
    if (section.head) {
      context.fillStyle = styles.text;
      context.font = "600 13px system-ui, sans-serif";
      context.fillText(`${section.name} · ${section.cards.length} node${section.cards.length === 1 ? "" : "s"}`, section.left + 2, section.top + 18, section.wide);
    }
    for (let line = 0; line + 1 < section.tops.length; line += 1) {
      if (section.top + section.tops[line + 1] < top || section.top + section.tops[line] > top + height) continue;
      for (const card of section.cards.slice(line * section.columns, (line + 1) * section.columns)) this.paintCard(context, card);
    }
  }

  /** Where a card is. @param {any} card */
  corner(card) {
    const { section, place } = card;
    return [section.left + 2 + (place % section.columns) * section.cardWidth, section.top + section.tops[Math.floor(place / section.columns)]];
  }

  /** @param {any} card */
  height({ section, place }) {
    const line = Math.floor(place / section.columns);
    return section.tops[line + 1] - section.tops[line];
  }

  /** @param {CanvasRenderingContext2D} context @param {any} card */
  paintCard(context, card) {
    const { size, gap, label, zoom } = this.metrics, styles = /** @type {any} */ (this.styles);
    const [left, top] = this.corner(card), { cardWidth } = card.section, cardHeight = this.height(card);
    if (zoom !== "s") {
      context.strokeStyle = card.row.closed ? styles.warn : styles.line;
      context.lineWidth = 1;
      context.setLineDash(card.row.closed ? [4, 3] : []);
      context.strokeRect(left + 1.5, top + 1.5, cardWidth - 5, cardHeight - 5);
      context.setLineDash([]);
      context.fillStyle = styles.soft;
      context.font = "11px system-ui, sans-serif";
      const text = card.row.closed ? `${card.name} · ${card.row.closed}` : card.name;
      context.fillText(text, left + PAD + 2, top + 14, cardWidth - PAD * 2 - 4);
    }
    if (card.row.clique) {
      context.fillStyle = colourOf(card.row.clique);
      context.fillRect(left - (zoom === "s" ? 0 : -1), top + (zoom === "s" ? 0 : 2), zoom === "s" ? 2 : 4, cardHeight - (zoom === "s" ? 3 : 6));
    }
    let y = top + label + (zoom === "s" ? 0 : PAD - 1);
    card.cells.forEach((/** @type {any[]} */ cells, /** @type {number} */ row) => {
      let x = left + (zoom === "s" ? 4 : PAD + 3);
      cells.forEach((found, place) => {
        if (place && cells[place - 1].cell.p !== found.cell.p) x += gap * 2;
        this.paintCell(context, found, x, y, size);
        const { cursor } = this;
        if (cursor && cursor.card.name === card.name && cursor.row === row && cursor.place === place) {
          context.strokeStyle = styles.text;
          context.lineWidth = 2;
          context.strokeRect(x - 2, y - 2, size + 4, size + 4);
        }
        x += size + gap;
      });
      y += size + gap;
    });
  }

  /** @param {CanvasRenderingContext2D} context @param {any} found @param {number} x @param {number} y @param {number} size */
  paintCell(context, found, x, y, size) {
    const { cell, model } = found, styles = /** @type {any} */ (this.styles), { colour, states, only } = this.settings;
    context.globalAlpha = !isWanted(cell, states) || (only && !only.has(found.name)) ? 0.15 : 1;
    const use = colour === "use" && cell.h ? (cell.g === undefined ? styles.soft : styles[/** @type {any} */ ([...USES].reverse().find(([from]) => cell.g >= from))[2]]) : "";
    const held = use || (colour === "namespace" && cell.h ? this.named.get(cell.h[0].split("/")[0]) : colour === "model" ? this.named.get(model) : "") || styles["cell-used"];
    context.fillStyle = styles["cell-free"];
    context.fillRect(x, y, size, size);
    if (cell.s === "u") { context.fillStyle = held; context.fillRect(x, y, size, size); }
    else if (cell.s === "p") { const part = Math.max(0.15, cell.f || 0.5) * size; context.fillStyle = held; context.fillRect(x, y + size - part, size, part); }
    else if (cell.s === "b" || cell.s === "x") {
      context.fillStyle = styles["cell-off"];
      context.fillRect(x, y, size, size);
      if (size > 8) {
        context.strokeStyle = styles.panel; context.lineWidth = 1.5; context.beginPath();
        context.moveTo(x, y + size); context.lineTo(x + size, y);
        if (cell.s === "x") { context.moveTo(x, y + size / 2); context.lineTo(x + size / 2, y); context.moveTo(x + size / 2, y + size); context.lineTo(x + size, y + size / 2); }
        context.stroke();
      }
    } else if (colour === "model") { context.strokeStyle = held; context.lineWidth = 1.5; context.strokeRect(x + 0.75, y + 0.75, size - 1.5, size - 1.5); }
    if (size > 8) { context.strokeStyle = styles.line; context.lineWidth = 1; context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1); }
    if (cell.t) { context.fillStyle = styles.warn; context.beginPath(); context.moveTo(x + size, y); context.lineTo(x + size, y + size * 0.55); context.lineTo(x + size * 0.45, y); context.fill(); }
    if (cell.x) {
      context.beginPath(); context.moveTo(x + 1, y + 1); context.lineTo(x + size - 1, y + size - 1); context.moveTo(x + size - 1, y + 1); context.lineTo(x + 1, y + size - 1);
      context.strokeStyle = styles.panel; context.lineWidth = 5; context.stroke(); context.strokeStyle = styles.bad; context.lineWidth = 2.5; context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** Which cell is under a pointer. @param {PointerEvent} event */
  at(event) {
    if (!this.metrics) return null;
    const box = this.element.getBoundingClientRect(), { size, gap, label, zoom } = this.metrics;
    const x = event.clientX - box.left - this.element.clientLeft, y = event.clientY - box.top - this.element.clientTop + this.element.scrollTop;
    const section = this.sections.find((each) => y >= each.top && y < each.bottom && x >= each.left && x < each.left + each.wide);
    if (!section) return null;
    const column = Math.floor((x - section.left - 2) / section.cardWidth), line = section.tops.findIndex((/** @type {number} */ each) => section.top + each > y) - 1;
    const card = column < section.columns && line >= 0 ? section.cards[line * section.columns + column] : null;
    if (!card) return null;
    const [left, top] = this.corner(card);
    const row = Math.floor((y - top - label - (zoom === "s" ? 0 : PAD - 1)) / (size + gap));
    if (row < 0 || row >= card.cells.length) return null;
    let at = left + (zoom === "s" ? 4 : PAD + 3);
    for (let place = 0; place < card.cells[row].length; place += 1) {
      if (place && card.cells[row][place - 1].cell.p !== card.cells[row][place].cell.p) at += gap * 2;
      if (x >= at && x < at + size + gap) return { card, row, place };
      at += size + gap;
    }
    return null;
  }

  /** Show which device is open. @param {string} node @param {string} name */
  mark(node, name) {
    const card = this.cards.get(node);
    card?.cells.forEach((/** @type {Found[]} */ cells, /** @type {number} */ row) => cells.forEach((found, place) => { if (found.name === name) this.cursor = { card, row, place }; }));
    this.draw();
  }

  cell() {
    const { card, row, place } = /** @type {any} */ (this.cursor);
    return card.cells[row][place];
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const found = this.at(event);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = described(found.card.name, found.card.cells[found.row][found.place]).text;
    const box = this.element.getBoundingClientRect();
    this.tip.style.setProperty("left", `${Math.min(event.clientX - box.left + 12, Math.max(0, box.width - 290))}px`);
    this.tip.style.setProperty("top", `${event.clientY - box.top + this.element.scrollTop + 16}px`);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const moves = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "Enter", " "];
    if (!moves.includes(event.key) || event.ctrlKey || event.metaKey || event.altKey || !this.sections.length) return;
    event.preventDefault();
    if (!this.cursor) this.cursor = { card: this.sections[0].cards[0], row: 0, place: 0 };
    else if (event.key === "Enter" || event.key === " ") { this.open(this.cursor.card.name, this.cell().name); return; }
    else this.move(event.key);
    const { card } = this.cursor, [, top] = this.corner(card);
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.height(card) > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + this.height(card) - this.element.clientHeight;
    say(described(card.name, this.cell()).text);
    this.draw();
  }

  /** @param {string} key */
  move(key) {
    const cursor = /** @type {any} */ (this.cursor), all = this.sections.flatMap((section) => section.cards), index = all.indexOf(cursor.card);
    const go = (/** @type {number} */ to, /** @type {number} */ row, /** @type {number} */ place) => {
      const card = all[Math.max(0, Math.min(all.length - 1, to))], line = Math.max(0, Math.min(card.cells.length - 1, row));
      this.cursor = { card, row: line, place: Math.max(0, Math.min(card.cells[line].length - 1, place)) };
    };
    if (key === "Home") go(0, 0, 0);
    else if (key === "End") go(all.length - 1, 99, 999);
    else if (key === "ArrowRight") { if (cursor.place + 1 < cursor.card.cells[cursor.row].length) go(index, cursor.row, cursor.place + 1); else if (index + 1 < all.length) go(index + 1, cursor.row, 0); }
    else if (key === "ArrowLeft") { if (cursor.place) go(index, cursor.row, cursor.place - 1); else if (index) go(index - 1, cursor.row, 999); }
    else if (key === "ArrowDown") { if (cursor.row + 1 < cursor.card.cells.length) go(index, cursor.row + 1, cursor.place); else go(index + cursor.card.section.columns, 0, cursor.place); }
    else if (cursor.row) go(index, cursor.row - 1, cursor.place); else if (index >= cursor.card.section.columns) go(index - cursor.card.section.columns, 99, cursor.place);
  }
}
