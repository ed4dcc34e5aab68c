// @ts-check
// The cluster: every device by node, and the numbers that matter, each with the list behind it.
import { ago, badge, bar, byId, copyButton, deviceTable, h, href, link, objectLink, plural, say } from "../dom.js";
import { cellsOf, Heat, isWanted, STATES, USES } from "../heat.js";
import { ask, get } from "../store.js";
import { List, matcher } from "../table.js";

export const title = "Cluster";
export const tables = ["nodes", "attention"];

const LEGEND = [["f", "free"], ["p", "partly in use"], ["u", "in use"], ["x", "unavailable"], ["t", "tainted"], ["h", "unhealthy"]];

const SEE = /** @type {Record<string, string>} */ ({ cluster: "See devices", nodes: "See nodes", pending: "See why", claims: "See claims", gangs: "See why", capacity: "See capacity" });
const NOTHING = { all: 0, f: 0, p: 0, u: 0, b: 0, x: 0, t: 0, h: 0, closed: 0, node: 0, measured: 0, use: 0 };

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.counts = new Map();
    this.sum = { ...NOTHING };
    this.tiles = h("ul", { class: "tiles", "aria-label": "At a glance" });
    this.attention = h("details", { class: "attention", ontoggle: () => localStorage.setItem("attention", this.attention.open ? "open" : "") });
    this.attention.open = localStorage.getItem("attention") === "open";
    this.heat = new Heat({ open: (node, name) => this.open(node, name) });
    this.drawer = h("aside", { class: "drawer", hidden: true, "aria-label": "Device" });
    this.by = h("select", { "aria-label": "Group nodes by", onchange: () => this.choose({ by: this.by.value }) });
    this.colour = h("select", { "aria-label": "Color devices by", onchange: () => this.choose({ colour: this.colour.value }) },
      ...[["state", "Color: state"], ["namespace", "Color: namespace"], ["model", "Color: model"], ["use", "Color: use"]].map(([value, text]) => h("option", { value }, text)));
    this.size = h("select", { "aria-label": "Size of devices", onchange: () => this.choose({ size: this.size.value }) },
      ...[["", "Size: fitting"], ["s", "small"], ["m", "middle"], ["l", "large"]].map(([value, text]) => h("option", { value }, text)));
    this.filter = h("input", { type: "search", placeholder: "Filter: words, or CEL: device.…", "aria-label": "Filter nodes by name, model, holder or label, or select devices by a CEL expression", spellcheck: "false", oninput: () => this.choose({ q: this.filter.value }) });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "States to show" });
    this.as = h("button", { type: "button", class: "small", onclick: () => this.choose({ as: this.app.params.as === "table" ? "" : "table" }) });
    this.match = h("p", { class: "note", role: "status", hidden: true });
    this.stage = h("div", { class: "stage" });
    this.empty = h("p", { class: "empty", hidden: true }, "No driver publishes devices here. ResourceSlices appear when a DRA driver runs on a node.");
    root.append(h("h1", {}, "Cluster"), this.tiles, this.attention, h("div", { class: "controls" }, this.filter, this.by, this.colour, this.size, this.as), this.legend, this.match, this.empty, h("div", { class: "beside" }, this.stage, this.drawer));
    this.settle();
    this.update();
  }

  settle() {
    const { params } = this.app;
    this.filter.value = params.q || ""; this.by.value = params.by || ""; this.colour.value = params.colour || "state"; this.size.value = params.size || "";
    this.filter.hidden = params.as === "table";
    this.as.textContent = params.as === "table" ? "Map" : "Table";
    const expression = /\bdevice\./.test(params.q || "") ? params.q : "";
    const matches = matcher(params.q || ""), any = (params.q || "").trim() !== "" && !expression;
    if (expression !== this.expression) { this.expression = expression; this.select(400); }
    this.heat.set({ by: params.by || "", colour: params.colour || "state", size: params.size || "", states: params.states || "",
      keep: (/** @type {string} */ name, /** @type {any} */ row) => !any || matches(this.hay(name, row)) });
    if (params.as === "table") {
      if (!this.list) { this.list = this.makeList(); this.stage.replaceChildren(this.list.element); this.showList(); }
    } else if (this.stage.firstChild !== this.heat.element) {
      this.list?.end(); this.list = null; this.stage.replaceChildren(this.heat.element); this.heat.arrange();
    }
    this.drawLegend();
    if (params.device) { if (params.device !== this.shown) this.fillDrawer(params.node, params.device); } else this.close(false);
  }

  /** Devices that an expression selects are told from the others, by the engine that schedulers use. @param {number} wait */
  select(wait) {
    clearTimeout(this.selecting);
    const { expression } = this;
    this.match.hidden = !expression;
    if (!expression) { this.heat.set({ only: null }); return; }
    this.selecting = setTimeout(async () => {
      const shown = (/** @type {any} */ answer) => {
        if (expression !== this.expression) return;
        this.heat.set({ only: new Set(answer.matches) });
        this.match.textContent = `${answer.matches.length.toLocaleString("en")} of ${plural(answer.all, "device")} match${answer.failed ? `; the expression fails on ${plural(answer.failed, "device")}: ${answer.failure}` : ""}`;
      };
      try { await ask("select", { expression }, shown); } catch (error) { if (expression === this.expression) { this.heat.set({ only: new Set() }); this.match.textContent = /** @type {any} */ (error).message; } }
    }, wait);
  }

  /** @param {string} name @param {any} row */
  hay(name, row) {
    const parts = [name, row.closed || "", row.group || "", row.clique || "", ...Object.values(row.labels || {})];
    for (const pool of row.dev) { parts.push(pool.driver, pool.m || ""); for (const cell of pool.d) { if (cell.h) parts.push(...cell.h); if (cell.m) parts.push(cell.m); if (cell.t) parts.push(...cell.t); } }
    return parts.join(" ").toLowerCase();
  }

  /** @param {any} params */
  choose(params) { this.app.set(params); this.settle(); if (this.list) this.showList(); }

  /** @param {any} _params */
  go(_params) { this.settle(); }

  /** @param {Map<string, Set<string>>} [changed] */
  update(changed) {
    const { nodes } = this.app.store.tables;
    if (!changed || changed.has("nodes")) {
      const names = changed?.get("nodes");
      for (const name of names || nodes.keys()) this.count(name, nodes.get(name));
      if (!names) for (const name of this.counts.keys()) if (!nodes.has(name)) this.count(name, null);
      this.heat.update(nodes, names);
      this.drawChoices(nodes);
      if (this.list) this.showList();
      if (names && this.shown && names.has(this.app.params.node)) this.fillDrawer(this.app.params.node, this.shown, true);
    }
    if (changed && this.expression) this.select(3000);
    if (!changed || changed.has("attention")) this.drawAttention();
    this.drawTiles();
    this.drawLegend();
  }

  /** @param {string} name @param {any} row */
  count(name, row) {
    this.add(this.counts.get(name), -1);
    if (!row) { this.counts.delete(name); return; }
    const counts = { ...NOTHING, closed: row.closed ? 1 : 0, node: row.at !== undefined ? 1 : 0 };
    for (const pool of row.dev) for (const cell of pool.d) { counts.all += 1; /** @type {any} */ (counts)[cell.s] += 1; if (cell.t) counts.t += 1; if (cell.x) counts.h += 1; if (cell.g !== undefined) { counts.measured += 1; counts.use += cell.g; } }
    this.counts.set(name, counts);
    this.add(counts, 1);
  }

  /** The sum stays right without looking at the nodes that did not change. @param {any} counts @param {number} sign */
  add(counts, sign) {
    if (counts) for (const key of Object.keys(NOTHING)) /** @type {any} */ (this.sum)[key] += sign * counts[key];
  }

  /** A sentence for each number that is bad, in the order of how much it matters. */
  drawAttention() {
    const order = ["sick", "nodes", "pools", "unavailable", "free", "waiting", "gangs", "pending", "idle", "unused"];
    const rows = [...this.app.store.tables.attention].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
    this.attention.replaceChildren(h("summary", {}, h("strong", {}, `${plural(rows.length, "thing stands", "things stand")} out: `), rows[0]?.[1].text || ""), h("ul", {}, ...rows.map(([, row]) => h("li", {}, row.text, row.since ? [" For ", ago(row.since), "."] : "", h("span", { class: "soft" }, ` ${row.do} `), link(row.to[0], row.to[1], SEE[row.to[0]])))));
    this.attention.hidden = !rows.length;
  }

  drawTiles() {
    const { sum } = this;
    const { waiting, pendingClaims: pending, idleClaims: idle, unplacedGangs: incomplete } = this.app.store.now.counts;
    const tile = (/** @type {any} */ number, /** @type {string} */ text, /** @type {string} */ address, /** @type {boolean} */ warn = false) => h("li", { class: warn ? "warn" : "" }, h("a", { href: address }, h("strong", {}, typeof number === "number" ? number.toLocaleString("en") : number), " ", h("span", {}, text)));
    const used = sum.u + sum.p + sum.b;
    this.tiles.replaceChildren(
      tile(sum.node - sum.closed, `of ${plural(sum.node, "node")} take pods`, href("nodes", sum.closed ? { q: "" } : {}), sum.closed > 0),
      tile(sum.f, `of ${plural(sum.all, "device")} free`, href("capacity"), sum.all > 0 && sum.f === 0),
      tile(sum.all ? `${Math.round((used / sum.all) * 100)} %` : "–", "of devices in use", href("timeline")),
      ...(sum.measured ? [tile(`${Math.round(sum.use / sum.measured)} %`, "busy, of those measured", href("cluster", { colour: "use" }), sum.use / sum.measured < 10)] : []),
      tile(sum.x + sum.h, "unavailable or unhealthy", href("cluster", { states: "xh" }), sum.x + sum.h > 0),
      tile(waiting, waiting === 1 ? "pod waits" : "pods wait", href("pending"), waiting > 0),
      tile(pending, pending === 1 ? "claim pending" : "claims pending", href("claims", { s: "pending" }), pending > 0),
      tile(idle, idle === 1 ? "claim idle" : "claims idle", href("claims", { s: "idle" }), idle > 0),
      tile(incomplete, incomplete === 1 ? "gang not placed" : "gangs not placed", href("gangs"), incomplete > 0));
    this.empty.hidden = sum.all > 0;
    this.stage.hidden = this.legend.hidden = sum.all === 0;
  }

  drawLegend() {
    const chosen = this.app.params.states || "", sum = /** @type {any} */ (this.sum);
    const buttons = LEGEND.map(([key, text]) => {
      const count = key === "t" ? sum.t : key === "h" ? sum.h : key === "x" ? (sum.x || 0) : key === "u" ? (sum.u || 0) + (sum.b || 0) : sum[key];
      const pressed = chosen.includes(key);
      return h("button", { type: "button", class: "key", "aria-pressed": String(pressed), onclick: () => { const now = pressed ? chosen.replace(key, "").replace(key === "u" ? "b" : "-", "") : chosen + (key === "u" ? "ub" : key); this.choose({ states: now }); /** @type {any} */ (this.legend.querySelectorAll("button")[LEGEND.findIndex(([each]) => each === key)])?.focus(); } },
        h("span", { class: `swatch ${key}`, "aria-hidden": "true" }), `${text} ${(count || 0).toLocaleString("en")}`);
    });
    if (this.app.params.colour === "use") buttons.push(...USES.map(([, text, name]) => h("span", { class: "key" }, h("span", { class: `swatch ${name}`, "aria-hidden": "true" }), text)), h("span", { class: "key" }, h("span", { class: "swatch unknown", "aria-hidden": "true" }), "not measured"));
    if (this.cliques && this.app.params.as !== "table") buttons.push(h("span", { class: "key" }, h("span", { class: "swatch rail", "aria-hidden": "true" }), "NVLink domain"));
    const names = [...this.heat.named];
    if (names.length) buttons.push(...names.slice(0, 14).map(([name, colour]) => h("span", { class: "key" }, h("span", { class: "swatch", "aria-hidden": "true", style: { background: colour } }), name)), names.length > 14 ? h("span", { class: "key" }, `and ${names.length - 14} more`) : h("span", {}));
    const text = buttons.map((each) => each.textContent + each.getAttribute("aria-pressed")).join();
    if (text !== this.legendText) { this.legendText = text; this.legend.replaceChildren(...buttons); }
  }

  /** @param {Map<string, any>} nodes */
  drawChoices(nodes) {
    const labels = new Set();
    let cliques = false, pools = false, seen = 0;
    for (const row of nodes.values()) {
      for (const label of Object.keys(row.labels || {})) labels.add(label);
      cliques = cliques || Boolean(row.clique); pools = pools || Boolean(row.group);
      if ((seen += 1) > 500) break;
    }
    this.cliques = cliques;
    const choices = [["", "Group: none"], ["model", "Group: model"], ...(cliques ? [["clique", "Group: NVLink domain"]] : []), ...(pools ? [["pool", "Group: pool"]] : []), ...[...labels].sort().map((label) => [label, label])];
    const text = JSON.stringify(choices);
    if (text === this.choices) return;
    this.choices = text;
    this.by.replaceChildren(...choices.map(([value, name]) => h("option", { value }, name)));
    this.by.value = this.app.params.by || "";
  }

  // --- the table ---

  makeList() {
    return new List({ caption: "devices", name: "devices", empty: "No driver publishes devices here.", params: { q: this.app.params.q, sort: this.app.params.sort }, set: (params) => { this.app.set(params); this.filter.value = this.app.params.q || ""; },
      open: (key) => href("cluster", { ...this.app.params, node: key.split("|")[0], device: key.split("|")[1] }),
      columns: [
        { title: "Device", value: (/** @type {string} */ key) => key.split("|")[1].split("/").pop() },
        { title: "Node", value: (/** @type {string} */ key) => key.split("|")[0] },
        { title: "State", value: (/** @type {string} */ _key, /** @type {any} */ { cell }) => cell.f ? `${Math.round(cell.f * 100)} % in use` : /** @type {any} */ (STATES)[cell.s] },
        { title: "Model", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ found) => found.model },
        { title: "NUMA", wide: true, size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ { cell }) => cell.u ?? "" },
        { title: "PCIe root", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ { cell }) => cell.p ?? "" },
        { title: "Busy", wide: true, size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ { cell }) => (cell.g === undefined ? "" : `${cell.g} %`) },
        { title: "Held by", value: (/** @type {string} */ _key, /** @type {any} */ { cell }) => (cell.h || []).join(", ") },
        { title: "Trouble", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ { cell }) => [cell.x, ...(cell.t || [])].filter(Boolean).join(", ") },
      ] });
  }

  showList() {
    const rows = new Map(), states = this.app.params.states || "";
    for (const [node, row] of this.app.store.tables.nodes) for (const cells of cellsOf(row)) for (const found of cells) if (isWanted(found.cell, states)) rows.set(`${node}|${found.name}`, found);
    this.list?.show(rows);
  }

  // --- one device ---

  /** @param {string} node @param {string} name */
  open(node, name) { this.returnTo = document.activeElement; this.app.set({ node, device: name }, true); this.fillDrawer(node, name); }

  /** @param {string} node @param {string} name @param {boolean} [quiet] */
  async fillDrawer(node, name, quiet) {
    this.shown = name;
    const found = cellsOf(this.app.store.tables.nodes.get(node) || { dev: [] }).flat().find((each) => each.name === name);
    if (!found) { this.drawer.replaceChildren(h("p", {}, `${name} is not there any more.`), this.closeButton()); this.drawer.hidden = false; return; }
    const { cell, pool, model } = found;
    const fact = (/** @type {string} */ term, /** @type {any} */ value) => (value === undefined || value === "" ? null : [h("dt", {}, term), h("dd", {}, value)]);
    const more = h("div", { class: "more" });
    const heading = h("h2", { tabindex: "-1" }, cell.n);
    this.drawer.replaceChildren(h("div", { class: "title" }, heading, this.closeButton()),
      h("dl", {}, ...[fact("State", cell.f ? `${Math.round(cell.f * 100)} % in use` : /** @type {any} */ (STATES)[cell.s]), fact("Model", model), fact("Node", objectLink("Node", node)), fact("NUMA node", cell.u), fact("PCIe root", cell.p), fact("NVLink domain", (this.app.store.tables.nodes.get(node) || {}).clique), fact("Driver", pool.driver), fact("Pool", pool.pool), fact("Pool is incomplete", pool.incomplete),
        fact("Taints", cell.t?.map((/** @type {string} */ each) => badge(each, "warn"))), fact("Trouble", cell.x && badge(cell.x, "bad")), fact("Busy", cell.g === undefined ? undefined : [bar(cell.g / 100), ` ${cell.g} %`]), fact("Held by", cell.h?.map((/** @type {string} */ claim) => h("div", {}, objectLink("ResourceClaim", claim))))].flat(2).filter(Boolean)),
      cell.k?.length ? h("div", {}, h("h3", {}, "Partitions in use"), h("ul", {}, ...cell.k.map((/** @type {any} */ part) => h("li", {}, `${part.p || part.n}: `, ...part.h.map((/** @type {string} */ claim) => objectLink("ResourceClaim", claim)))))) : "",
      h("p", {}, link("graph", { kind: "Device", name: cell.k ? `${pool.driver}/${pool.pool}/${cell.k[0]?.n || cell.n}` : name }, "What hangs on it"), " · ", link("nodes", { q: node }, "Its node"), " · ", link("timeline", { q: name.split("/").slice(-2).join("/") }, "Its history")), more);
    this.drawer.hidden = false;
    this.heat.mark(node, name);
    if (!quiet) { heading.focus(); say(`${cell.n} opened`); }
    if (cell.kn) return;
    try {
      const { tree } = await get("object", { kind: "Device", name });
      if (this.shown !== name) return;
      more.append(h("h3", {}, "Attributes and capacity"), deviceTable(tree), h("p", {}, "Slice ", objectLink("ResourceSlice", tree.slice), " ", copyButton(name, "Copy name")));
    } catch (error) { more.append(h("p", { class: "note" }, String(/** @type {any} */ (error).message))); }
  }

  closeButton() { return h("button", { type: "button", class: "small", onclick: () => this.close(true) }, "Close"); }

  close(asked = true) {
    if (this.drawer.hidden) return false;
    this.drawer.hidden = true;
    this.shown = "";
    if (asked) { this.app.set({ node: "", device: "" }); /** @type {any} */ (this.returnTo || this.heat.element)?.focus?.(); }
    return true;
  }

  escape() { return this.close(true); }
  end() { clearTimeout(this.selecting); this.heat.end(); this.list?.end(); byId("main").classList.remove("wide"); }
}
