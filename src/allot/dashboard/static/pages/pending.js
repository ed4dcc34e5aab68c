// @ts-check
// Pods that wait: what the scheduler said, at once; why, and what would help, per kind of pod.
import { ago, badge, h, href, objectLink, plural, say, seconds } from "../dom.js";
import { explainInto } from "../explain.js";
import { List } from "../table.js";

export const title = "Pending";
export const tables = ["pods"];

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.detail = h("section", { class: "detail", "aria-live": "off" });
    this.list = new List({ caption: "pods that wait", name: "pending", empty: "No pod waits. Whatever was asked for has been placed.", params: app.params, set: (params) => app.set(params),
      open: (key) => href("pending", { ...app.params, shape: key }),
      // What matters most first, and of that what waits longest.
      order: (_key, shape) => -(shape.row.prio || 0) * 1e12 + shape.since,
      columns: [
        { title: "Pods", value: (/** @type {string} */ _key, /** @type {any} */ shape) => (shape.pods.length === 1 ? shape.pods[0] : `${shape.pods[0]} and ${shape.pods.length - 1} more`) },
        { title: "State", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ shape) => shape.row.s, cell: (/** @type {string} */ _key, /** @type {any} */ shape) => badge(shape.row.s, "warn") },
        { title: "Message", size: "broad", value: (/** @type {string} */ _key, /** @type {any} */ shape) => shape.row.msg || shape.row.why },
        { title: "Gang", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ shape) => shape.row.gang || "" },
        { title: "Tried", size: "narrow", wide: true, value: (/** @type {string} */ _key, /** @type {any} */ shape) => shape.tries, cell: (/** @type {string} */ _key, /** @type {any} */ shape) => (shape.tries ? [`${shape.tries.toLocaleString("en")} ×`] : "–") },
        { title: "Waits", size: "narrow", value: (/** @type {string} */ _key, /** @type {any} */ shape) => -shape.since, cell: (/** @type {string} */ _key, /** @type {any} */ shape) => ago(shape.since) },
      ] });
    this.summary = h("p", { class: "lead" });
    root.append(h("h1", {}, "Pending"), this.summary, this.list.element, this.detail);
    this.update();
  }

  update() {
    const shapes = new Map();
    let count = 0;
    for (const [key, row] of this.app.store.tables.pods) {
      if (!row.shape) continue;
      count += 1;
      const shape = shapes.get(row.shape);
      if (shape) { shape.pods.push(key); shape.since = Math.min(shape.since, seconds(row.at)); shape.tries += row.tries || 0; } else shapes.set(row.shape, { pods: [key], row, since: seconds(row.at), tries: row.tries || 0 });
    }
    for (const shape of shapes.values()) shape.pods.sort();
    this.shapes = shapes;
    this.summary.textContent = count ? `${plural(count, "pod waits", "pods wait")}, in ${plural(shapes.size, "row")}: equal pods with the same message share one.` : "";
    this.list.show(shapes);
    this.go(this.app.params, true);
  }

  /** @param {any} params @param {boolean} [quiet] */
  go(params, quiet) {
    let shape = this.shapes?.get(params.shape);
    if (!shape && params.shape && this.shown) {
      // What is said of the pod has changed, and with it its row.
      const [key, other] = [...(this.shapes || [])].find(([, each]) => each.pods.includes(this.shown)) || [];
      if (other) { this.app.set({ shape: key }); shape = other; }
    }
    if (!shape && params.pod) shape = [...(this.shapes?.values() || [])].find((each) => each.pods.includes(params.pod));
    if (!shape) {
      const gone = params.shape && this.shown;
      this.shown = "";
      this.detail.replaceChildren(...(gone ? [h("p", { class: "note" }, "These pods do not wait any more, or wait for something else now.")] : []));
      return;
    }
    const pod = [params.pod, this.shown].find((each) => each && shape.pods.includes(each)) || shape.pods[0], [ns, name] = pod.split("/");
    const said = shape.row.msg || shape.row.why || "nobody has said anything yet";
    if (this.quote && this.shown === pod && this.quote.textContent !== said) this.quote.textContent = said;
    const row = this.app.store.tables.pods.get(pod) || shape.row;
    if (this.shown === pod) this.drawTries(row);
    const decisive = this.app.store.now.decisive;
    if (this.shown === pod && this.asked === decisive) return;
    const answer = this.shown === pod ? this.answer : h("div", { class: "answer" });
    if (this.shown !== pod) {
      const heading = h("h2", { tabindex: "-1" }, shape.pods.length > 1 ? `${pod} and ${shape.pods.length - 1} like it` : pod);
      this.answer = answer;
      this.detail.replaceChildren(heading, (this.quote = h("p", { class: "quote" }, said)), (this.tries = h("p", { class: "soft" })), answer,
        h("details", {}, h("summary", {}, `${plural(shape.pods.length, "pod")}`), h("ul", { class: "columns" }, ...shape.pods.slice(0, 500).map((/** @type {string} */ each) => h("li", {}, objectLink("Pod", each))))));
      this.drawTries(row);
      if (!quiet) { heading.focus(); say(`${pod}: ${shape.row.msg || shape.row.why}`); }
    }
    this.shown = pod;
    this.asked = decisive;
    clearTimeout(this.later);
    // While the cluster changes all the time, the question is asked every few seconds.
    const wait = this.askedAt && Date.now() - this.askedAt < 3000 && answer.childElementCount ? 3000 : 0;
    this.later = setTimeout(() => { this.askedAt = Date.now(); explainInto(answer, { kind: "pod", ns, name }, () => this.shown === pod); }, wait);
  }

  /** How long it waits, and how often it was tried, as far as events tell. @param {any} row */
  drawTries(row) {
    this.tries.replaceChildren("Waits for ", ago(row.at), ...(row.tries ? [`; the scheduler tried it ${plural(row.tries, "time")}, last `, ago(row.tried), " ago."] : ["; no event tells of an attempt."]));
  }

  escape() {
    if (!this.app.params.shape) return false;
    this.app.set({ shape: "", pod: "" });
    this.go(this.app.params, true);
    this.list.box.focus();
    return true;
  }
  end() { clearTimeout(this.later); this.list.end(); }
}
