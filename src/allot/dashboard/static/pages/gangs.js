// @ts-check
// Gangs: pods that start together or not at all.
import { ago, badge, bar, h, href, objectLink, plural, seconds } from "../dom.js";
import { explainInto } from "../explain.js";
import { List } from "../table.js";

export const title = "Gangs";
export const tables = ["gangs", "pods"];
const TONES = { placed: "good", done: "", waiting: "warn", incomplete: "warn", "partly placed": "warn" };
/** Without the API group that keys of other schedulers' gangs have in front. @param {string} key */
const nameOf = (key) => { const cut = key.indexOf("/"); return `${key.slice(0, cut)}/${key.slice(cut + 1).split(":").slice(-1)[0]}`; };

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.detail = h("section", { class: "detail" });
    this.list = new List({ caption: "gangs", name: "gangs", empty: "There are no gangs. A PodGroup (of scheduling.k8s.io, KAI, Volcano or coscheduling) makes one.", params: app.params, set: (params) => app.set(params),
      open: (key) => href("gangs", { ...app.params, gang: key }),
      columns: [
        { title: "Gang", value: nameOf },
        { title: "State", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => row.s, cell: (/** @type {string} */ _key, /** @type {any} */ row) => badge(row.s, /** @type {any} */ (TONES)[row.s]) },
        { title: "Placed", value: (/** @type {string} */ _key, /** @type {any} */ row) => row.placed / (row.min || 1), cell: (/** @type {string} */ _key, /** @type {any} */ row) => [bar(row.placed / (row.min || 1)), ` ${row.placed} of at least ${row.min}`] },
        { title: "Pods", size: "narrow", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => row.pods },
        { title: "Domain", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => (row.by ? `${(row.domains || []).join(", ") || "–"} (${row.by})` : "") },
        { title: "Queue", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ row) => row.queue || "" },
        { title: "Age", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ row) => -seconds(row.at), cell: (/** @type {string} */ _key, /** @type {any} */ row) => ago(row.at) },
      ] });
    root.append(h("h1", {}, "Gangs"), this.list.element, this.detail);
    this.update();
  }

  update() { this.list.show(this.app.store.tables.gangs); this.go(this.app.params, true); }

  /** @param {any} params @param {boolean} [quiet] */
  go(params, quiet) {
    const key = params.gang, row = this.app.store.tables.gangs.get(key);
    if (!row) { this.shown = ""; this.detail.replaceChildren(); return; }
    const decisive = this.app.store.now.decisive;
    if (this.shown === key && this.asked === decisive) return;
    const again = this.shown === key;
    this.shown = key; this.asked = decisive;
    const answer = again ? this.answer : h("div", { class: "answer" });
    const ns = key.split("/")[0], pods = this.app.store.tables.pods;
    const heading = h("h2", { tabindex: "-1" }, nameOf(key));
    const members = h("ul", { class: "columns" }, ...row.members.map((/** @type {string} */ name) => { const pod = pods.get(`${ns}/${name}`) || {}; return h("li", {}, objectLink("Pod", `${ns}/${name}`, name), ` ${pod.s || ""}`, pod.node ? [" on ", objectLink("Node", pod.node)] : null); }));
    this.answer = answer;
    this.detail.replaceChildren(heading, row.msg ? h("p", { class: "quote" }, row.msg) : "", answer, h("h3", {}, plural(row.members.length, "member")), members);
    if (!again && !quiet) heading.focus();
    if (row.s !== "placed" && row.s !== "done") explainInto(answer, { kind: "gang", ns, name: nameOf(key).split("/")[1] }, () => this.shown === key);
  }

  escape() { if (!this.app.params.gang) return false; this.app.set({ gang: "" }); this.go(this.app.params); this.list.box.focus(); return true; }
  end() { this.list.end(); }
}
