// @ts-check
// Claims: what they ask for, what they hold, who uses them.
import { ago, badge, bar, h, memory, objectLink, seconds, href } from "../dom.js";
import { List } from "../table.js";

export const title = "Claims";
export const tables = ["claims"];
const TONES = { pending: "warn", idle: "warn", deleting: "warn", "in use": "good" };
const STATES = ["", "pending", "in use", "idle", "unused", "deleting"];

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    const state = this.state = h("select", { "aria-label": "State", onchange: () => { app.set({ s: state.value }); this.list.refresh(); } }, ...STATES.map((value) => h("option", { value }, value || "State: any")));
    state.value = app.params.s || "";
    const low = this.low = h("input", { type: "checkbox", id: "low", onchange: () => { app.set({ u: low.checked ? "low" : "" }); this.list.refresh(); } });
    low.checked = app.params.u === "low";
    this.list = new List({ caption: "claims", name: "claims", empty: "There are no claims. A pod that names a claim or a template makes one.", params: app.params, set: (params) => app.set(params), extra: [state, h("label", { class: "check" }, low, " hardly used")],
      keep: (_key, row) => (!app.params.s || row.s === app.params.s) && (!app.params.u || row.low !== undefined),
      open: (key) => href("object", { kind: "ResourceClaim", ns: key.split("/")[0], name: key.split("/")[1] }),
      columns: [
        { title: "Claim", value: (/** @type {string} */ key) => key },
        { title: "State", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => row.s, cell: (/** @type {string} */ _key, /** @type {any} */ row) => badge(row.s, /** @type {any} */ (TONES)[row.s]) },
        { title: "Asks for", wide: true, size: "ample", value: (/** @type {string} */ _key, /** @type {any} */ row) => row.asks.join("; ") },
        { title: "Devices", value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.d || []).map((/** @type {string} */ name) => name.split("/").pop()).join(", ") || row.x || "" },
        { title: "Busy", wide: true, size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.use ? row.use[0] : -1), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.use ? h("span", { title: `${row.use[0]} % of the time, ${memory(row.use[1] * 1048576)} of memory` }, bar(row.use[0] / 100, row.low !== undefined ? "warn" : ""), ` ${row.use[0]} %`) : "–") },
        { title: "Node", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.nodes || []).join(", "), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.nodes || []).slice(0, 2).map((/** @type {string} */ node) => [objectLink("Node", node), " "]) },
        { title: "Pods", value: (/** @type {string} */ _key, /** @type {any} */ row) => [...(row.pods || []), ...(row.waiting || [])].join(", "), cell: (/** @type {string} */ key, /** @type {any} */ row) => this.pods(key, row) },
        { title: "Age", size: "narrow", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => -seconds(row.at), cell: (/** @type {string} */ _key, /** @type {any} */ row) => ago(row.at) },
        { title: "Held for", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => -(seconds(row.since) || 0), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.since ? ago(row.since) : "–") },
      ] });
    root.append(h("h1", {}, "Claims"), this.list.element);
    this.update();
  }

  /** @param {string} key @param {any} row */
  pods(key, row) {
    const ns = key.split("/")[0], users = row.pods || [], waiting = row.waiting || [];
    const shown = [...users.map((/** @type {string} */ name) => [name, false]), ...waiting.map((/** @type {string} */ name) => [name, true])];
    return [...shown.slice(0, 2).map(([name, waits]) => [String(name).includes("/") ? name : objectLink("Pod", `${ns}/${name}`, name), waits ? " (waits) " : " "]), shown.length > 2 ? `and ${shown.length - 2} more` : null];
  }

  update() { this.list.show(this.app.store.tables.claims); }
  /** @param {any} params */
  go(params) { this.state.value = params.s || ""; this.low.checked = params.u === "low"; this.list.filter.value = params.q || ""; this.list.refresh(); }
  end() { this.list.end(); }
}
