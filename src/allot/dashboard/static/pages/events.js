// @ts-check
// Events: what was said, the newest first.
import { ago, badge, h, objectLink, seconds } from "../dom.js";
import { List } from "../table.js";

export const title = "Events";
export const tables = ["events"];

export const columns = [
  { title: "Seen", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => -(seconds(row.at) || 0), cell: (/** @type {string} */ _key, /** @type {any} */ row) => ago(row.at) },
  { title: "Reason", size: "middle", value: (/** @type {string} */ _key, /** @type {any} */ row) => row.reason, cell: (/** @type {string} */ _key, /** @type {any} */ row) => badge(row.reason, row.warn ? "warn" : "") },
  { title: "About", value: (/** @type {string} */ _key, /** @type {any} */ row) => `${row.kind} ${row.ns}/${row.name}`, cell: (/** @type {string} */ _key, /** @type {any} */ row) => [`${row.kind} `, objectLink(row.kind, row.kind === "Node" ? row.name : `${row.ns}/${row.name}`, row.name)] },
  { title: "Message", size: "broad", value: (/** @type {string} */ _key, /** @type {any} */ row) => row.msg },
  { title: "Times", size: "narrow", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => row.count || 1 },
  { title: "From", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => row.from || "" },
];

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    const warn = h("input", { type: "checkbox", id: "warnings", checked: app.params.warn === "1", onchange: () => { app.set({ warn: warn.checked ? "1" : "" }); this.list.refresh(); } });
    this.list = new List({ caption: "events", name: "events", empty: "There are no events; servers keep them for an hour.", params: { sort: "Seen", ...app.params }, set: (params) => app.set(params), columns,
      extra: [h("label", { class: "check" }, warn, " Warnings only")], keep: (_key, row) => app.params.warn !== "1" || row.warn });
    root.append(h("h1", {}, "Events"), this.list.element);
    this.update();
  }

  update() { this.list.show(this.app.store.tables.events); }
  /** @param {any} params */
  go(params) { this.list.filter.value = params.q || ""; this.list.refresh(); }
  end() { this.list.end(); }
}
