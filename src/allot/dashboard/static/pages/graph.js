// @ts-check
// Pods, claims, devices and slices around one object, joined by lines. The boxes are links, so it can be walked through.
import { h, href, plural, svg } from "../dom.js";
import { get } from "../store.js";

export const title = "Graph";
export const tables = /** @type {string[]} */ ([]);
const KINDS = [["Pod", "Pods"], ["ResourceClaim", "Claims"], ["Device", "Devices"], ["ResourceSlice", "Slices"]];

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.heading = h("h1", {});
    this.lines = svg("svg", { class: "lines", "aria-hidden": "true" });
    this.columns = h("div", { class: "graph" });
    this.note = h("p", { class: "note", role: "status" });
    this.box = h("div", { class: "graphbox", tabindex: "0", role: "region", "aria-label": "What hangs on what" }, this.lines, this.columns);
    root.append(this.heading, this.note, this.box);
    this.observer = new ResizeObserver(() => this.join());
    this.observer.observe(this.box);
    this.load();
  }

  async load() {
    const { kind, ns, name } = this.app.params;
    if (!kind) { this.heading.textContent = "Graph"; this.note.textContent = "Search for a pod, claim, node or device, and open its picture from there."; return; }
    this.heading.textContent = `${kind} ${ns ? `${ns}/` : ""}${name}`;
    this.shown = this.app.store.now.decisive;
    try { this.graph = await get("graph", { kind, ns, name }); } catch (error) { this.graph = null; this.columns.replaceChildren(); this.lines.replaceChildren(); this.note.textContent = /** @type {any} */ (error).message; return; }
    const { boxes, leftOut } = this.graph, own = ns ? `${ns}/${name}` : name;
    this.note.textContent = leftOut ? `${plural(leftOut, "more is", "more are")} not shown.` : boxes.length ? "" : "Nothing hangs on it: no pod here uses a claim.";
    this.elements = boxes.map((/** @type {any} */ box) => {
      const cut = box.kind === "Device" ? -1 : box.name.indexOf("/"), params = { kind: box.kind, ns: cut < 0 ? "" : box.name.slice(0, cut), name: box.name.slice(cut + 1) };
      const mine = box.kind === kind && box.name === own;
      return h("li", {}, h("a", { class: `box${box.warn ? " warn" : ""}`, href: href(mine ? "object" : "graph", params), "aria-current": mine ? "true" : undefined }, h("strong", {}, box.kind === "Device" ? box.name.split("/").slice(-1)[0] : box.name), h("span", {}, box.note)));
    });
    this.columns.replaceChildren(...KINDS.map(([each, text]) => { const own = boxes.map((/** @type {any} */ box, /** @type {number} */ place) => (box.kind === each ? this.elements[place] : null)).filter(Boolean); return h("section", { "aria-label": text }, h("h2", {}, `${text} ${own.length}`), h("ul", {}, ...own)); }));
    this.join();
  }

  join() {
    if (!this.graph) return;
    const origin = this.columns.getBoundingClientRect();
    this.lines.setAttribute("width", String(this.columns.scrollWidth)); this.lines.setAttribute("height", String(this.columns.scrollHeight));
    // Where columns stand below each other, lines would only be in the way.
    const stacked = getComputedStyle(this.columns).flexDirection === "column";
    this.lines.replaceChildren(...(stacked ? [] : this.graph.edges.map((/** @type {[number, number]} */ [from, to]) => {
      const a = this.elements[from].getBoundingClientRect(), b = this.elements[to].getBoundingClientRect();
      const x1 = a.right - origin.left, y1 = a.top + a.height / 2 - origin.top, x2 = b.left - origin.left, y2 = b.top + b.height / 2 - origin.top, middle = (x1 + x2) / 2;
      return svg("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
    })));
  }

  update() {
    if (this.shown === this.app.store.now.decisive) return;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(), 1000);
  }
  go() { this.load(); }
  end() { clearTimeout(this.later); this.observer.disconnect(); }
}
