// @ts-check
// Nodes, what is left on them, and the pools that they come from.
import { ago, badge, bar, h, href, memory, plural, seconds } from "../dom.js";
import { get } from "../store.js";
import { List } from "../table.js";

export const title = "Nodes";
export const tables = ["nodes"];

/** @param {any} row */
function counted(row) {
  const found = { all: 0, f: 0, p: 0, u: 0, b: 0, x: 0 };
  for (const pool of row.dev) for (const cell of pool.d) { found.all += 1; /** @type {any} */ (found)[cell.s] += 1; }
  return found;
}
/** @param {[number, number]} pair @param {(amount: number) => string} say */
const share = ([asked, total], say) => [bar(asked / (total || 1)), ` ${say(asked)} of ${say(total)}`];
const cores = (/** @type {number} */ milli) => String(Math.round(milli / 100) / 10);

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.pools = h("div", {});
    this.list = new List({ caption: "nodes", name: "nodes", empty: "There are no nodes.", params: app.params, set: (params) => app.set(params),
      open: (key) => href("object", { kind: "Node", name: key }),
      keep: (_key, row) => row.at !== undefined || row.unknown,
      text: (key, row) => `${key} ${row.closed || ""} ${row.group || ""} ${(row.taints || []).join(" ")} ${Object.entries(row.labels || {}).flat().join(" ")} ${row.dev.map((/** @type {any} */ pool) => pool.m || pool.driver).join(" ")}`,
      columns: [
        { title: "Node", value: (/** @type {string} */ key) => key },
        { title: "State", value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.unknown ? "unknown" : row.closed || "takes pods"), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.unknown ? badge("unknown", "warn") : row.closed ? badge(row.closed, "warn") : badge("takes pods", "good")) },
        { title: "Devices free", value: (/** @type {string} */ _key, /** @type {any} */ row) => counted(row).f, cell: (/** @type {string} */ _key, /** @type {any} */ row) => { const c = counted(row); return c.all ? [bar(1 - c.f / c.all), ` ${c.f} of ${c.all}`] : "none"; } },
        { title: "CPU asked", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.cpu ? row.cpu[0] / (row.cpu[1] || 1) : 0), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.cpu ? share(row.cpu, cores) : "") },
        { title: "Memory asked", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.mem ? row.mem[0] / (row.mem[1] || 1) : 0), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.mem ? share(row.mem, memory) : "") },
        { title: "Pods", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.pods ? row.pods[0] : 0), cell: (/** @type {string} */ _key, /** @type {any} */ row) => (row.pods ? `${row.pods[0]} of ${row.pods[1]}` : "") },
        { title: "Pool", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => row.group || "" },
        { title: "Age", size: "narrow", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => -(seconds(row.at) || 0), cell: (/** @type {string} */ _key, /** @type {any} */ row) => ago(row.at) },
      ] });
    root.append(h("h1", {}, "Nodes and pools"), this.pools, this.list.element);
    this.update();
    if (app.about.live) this.ask();
    this.timer = setInterval(() => app.about.live && !document.hidden && this.ask(), 15000);
  }

  async ask() {
    try { this.status = (await get("autoscaler")).status; } catch { this.status = null; }
    this.drawPools();
  }

  update() { this.list.show(this.app.store.tables.nodes); this.drawPools(); }
  /** @param {any} params */
  go(params) { this.list.filter.value = params.q || ""; this.list.refresh(); }

  drawPools() {
    const pools = new Map();
    for (const row of this.app.store.tables.nodes.values()) {
      if (!row.group) continue;
      const pool = pools.get(row.group) || { nodes: 0, open: 0, all: 0, f: 0 };
      const count = counted(row);
      pool.nodes += 1; pool.open += row.closed ? 0 : 1; pool.all += count.all; pool.f += count.f;
      pools.set(row.group, pool);
    }
    const groups = new Map((this.status?.nodeGroups || []).map((/** @type {any} */ group) => [group.name, group]));
    for (const name of groups.keys()) if (!pools.has(name)) pools.set(name, { nodes: 0, open: 0, all: 0, f: 0 });
    if (!pools.size) { this.pools.replaceChildren(); return; }
    const rows = [...pools].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, pool]) => {
      const group = groups.get(name), health = group?.health || {}, up = group?.scaleUp || {};
      return h("tr", {}, h("th", { scope: "row" }, h("a", { href: href("nodes", { q: name }) }, name)), h("td", {}, `${pool.open} of ${plural(pool.nodes, "node")}`), h("td", {}, pool.all ? [bar(1 - pool.f / pool.all), ` ${pool.f} of ${pool.all} free`] : "none"),
        h("td", {}, group ? `${health.minSize ?? "?"} to ${health.maxSize ?? "?"}, target ${health.cloudProviderTarget ?? "?"}` : "–"), h("td", {}, group?.pricePerHour || "–"),
        h("td", {}, up.status ? badge(up.status, up.status === "Backoff" ? "warn" : "") : "–", up.backoffInfo ? ` ${up.backoffInfo.errorMessage}` : ""), h("td", {}, group?.scaleDown?.status || "–"));
    });
    this.pools.replaceChildren(h("h2", {}, "Pools"), h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "Pools" }, h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Pools"),
      h("thead", {}, h("tr", {}, ...["Pool", "Take pods", "Devices", "Size", "Per hour", "Scale up", "Scale down"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...rows))),
      this.status?.message ? h("p", { class: "note" }, this.status.message) : "", this.status ? "" : h("p", { class: "soft" }, "No autoscaler reports here: sizes are those of the nodes that are there."));
  }

  end() { clearInterval(this.timer); this.list.end(); }
}
