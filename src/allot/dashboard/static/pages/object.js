// @ts-check
// Any object: what hangs on it, its events, its YAML.
import { ago, badge, copyButton, deviceTable, h, link, objectLink } from "../dom.js";
import { get } from "../store.js";

export const title = "Object";
export const tables = /** @type {string[]} */ ([]);
const KINDS = /** @type {Record<string, string>} */ ({ pod: "Pod", claim: "ResourceClaim", device: "Device", node: "Node" });

/** @param {any} branch @returns {any} */
export function tree(branch) {
  const facts = Object.entries(branch.facts || {}).map(([key, value]) => `${key}: ${value}`).join(" · ");
  const kind = KINDS[branch.kind];
  return h("li", {}, h("span", { class: "soft" }, `${branch.kind} `), kind && branch.name.includes("/") ? objectLink(kind, branch.name) : kind === "Node" ? objectLink("Node", branch.name) : branch.name, facts ? h("span", { class: "soft" }, ` ${facts}`) : "", branch.problem ? [" ", badge(branch.problem, "warn")] : "",
    branch.children?.length ? h("ul", {}, ...branch.children.map(tree)) : "");
}

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.root = root;
    this.load();
  }

  async load() {
    const { kind, ns, name } = this.app.params, key = ns ? `${ns}/${name}` : name, wanted = JSON.stringify([kind, ns, name]);
    this.wanted = wanted;
    const heading = h("h1", {}, `${kind} ${key}`);
    const graph = ["Pod", "ResourceClaim", "Device", "ResourceSlice", "Node"].includes(kind) ? link("graph", { kind, ns, name }, "What hangs on it, as a picture") : null;
    const pending = kind === "Pod" ? link("pending", { pod: key }, "Why it waits, if it does") : null;
    this.shown = this.app.store.now.decisive;
    let found;
    try {
      found = await get("object", { kind, ns, name });
    } catch (error) {
      if (this.wanted === wanted) this.root.replaceChildren(heading, h("p", { class: "note" }, /** @type {any} */ (error).message));
      return;
    }
    if (this.wanted !== wanted) return;
    const parts = [heading, h("p", {}, graph, graph && pending ? " · " : "", pending)];
    if (found.tree) parts.push(h("h2", {}, "What hangs on it"), h("ul", { class: "tree" }, tree(found.tree)));
    if (found.tree?.attributes) parts.push(h("h2", {}, "Attributes and capacity"), deviceTable(found.tree), h("p", {}, "Slice ", objectLink("ResourceSlice", found.tree.slice)));
    if (found.events?.length) parts.push(h("h2", {}, "Events"), h("ul", { class: "marks" }, ...found.events.map((/** @type {any} */ event) => h("li", {}, ago(event.at), " ", badge(event.reason, event.warn ? "warn" : ""), ` ${event.msg}`, event.count ? h("span", { class: "soft" }, ` ${event.count} times`) : ""))));
    if (found.yaml) parts.push(h("div", { class: "title" }, h("h2", {}, "YAML"), copyButton(found.yaml)), h("pre", { class: "yaml", tabindex: "0", "aria-label": "YAML" }, found.yaml));
    const place = document.scrollingElement?.scrollTop || 0;
    this.root.replaceChildren(...parts);
    if (document.scrollingElement) document.scrollingElement.scrollTop = place;
  }

  update() {
    if (this.shown === this.app.store.now.decisive) return;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(), 1000);
  }
  go() { this.load(); }
  end() { clearTimeout(this.later); }
}
