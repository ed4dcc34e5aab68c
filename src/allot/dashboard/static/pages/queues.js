// @ts-check
// Queues of teams: what each deserves, gets, holds and waits for; who borrows, and who has to give back.
import { badge, bar, h, href, objectLink } from "../dom.js";
import { explainInto } from "../explain.js";
import { ask } from "../store.js";

export const title = "Queues";
export const tables = /** @type {string[]} */ ([]);
const number = (/** @type {string} */ text) => (text === "unlimited" ? Infinity : Number(text));
const shown = (/** @type {string} */ text) => (text === "unlimited" ? "–" : text);
const round = (/** @type {number} */ amount) => String(Math.round(amount * 100) / 100);

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.body = h("div", {}, h("p", { class: "note", role: "status" }, "Working out the shares …"));
    this.detail = h("section", { class: "detail" });
    root.append(h("h1", {}, "Queues"), this.body, this.detail);
    this.update();
  }

  update() {
    if (this.asked === this.app.store.now.decisive && this.asked !== undefined) return;
    this.asked = this.app.store.now.decisive;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(), this.answer ? 3000 : 0);
  }

  async load() {
    try {
      await ask("queues", {}, (answer) => { this.answer = answer; this.draw(); });
    } catch (error) { this.body.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message)); }
  }

  draw() {
    const { queues, resources, strays } = this.answer;
    if (!queues.length) { this.body.replaceChildren(h("p", { class: "empty" }, "There are no queues. Queues of KAI-Scheduler (scheduling.run.ai) and of Volcano (scheduling.volcano.sh) are shown here.")); return; }
    const rows = [], borrowers = [], owed = [];
    const parents = new Set(queues.map((/** @type {any} */ queue) => queue.parent));
    for (const queue of queues) {
      const own = queue.resources.filter((/** @type {any} */ each) => resources.includes(each.resource));
      own.forEach((/** @type {any} */ each, /** @type {number} */ place) => {
        const deserved = number(each.deserved), fair = number(each.fairShare), held = number(each.allocated), waits = number(each.pending), limit = number(each.limit);
        const most = Math.max(held + waits, fair, Number.isFinite(deserved) ? deserved : 0, Number.isFinite(limit) ? limit : 0, 1);
        const unit = each.unit && each.resource !== "gpu" ? ` in ${each.unit}` : "";
        if (!parents.has(queue.name) && Number.isFinite(deserved) && held > deserved) borrowers.push([queue, each, held - deserved]);
        if (!parents.has(queue.name) && waits > 0 && fair > held) owed.push([queue, each, Math.min(fair - held, waits)]);
        rows.push(h("tr", {}, place === 0 ? h("th", { scope: "rowgroup", rowspan: own.length, style: { "padding-left": `${0.6 + queue.depth * 1.2}em` } }, h("a", { href: href("queues", { queue: queue.name }) }, queue.title || queue.name), queue.problem ? [" ", badge(queue.problem, "warn")] : null) : null,
          h("td", {}, each.resource + unit), h("td", {}, shown(each.deserved)), h("td", { class: "wide" }, shown(each.limit)), h("td", {}, each.fairShare),
          h("td", {}, bar(held / most, held > deserved ? "warn" : ""), ` ${each.allocated}`), h("td", {}, each.pending === "0" ? "0" : badge(each.pending, "warn"))));
      });
    }
    const sentence = (/** @type {any[]} */ [queue, each, amount], /** @type {string} */ words) => h("li", {}, h("a", { href: href("queues", { queue: queue.name }) }, queue.name), ` ${words} ${round(amount)} ${each.resource}`);
    const leaving = queues.flatMap((/** @type {any} */ queue) => queue.jobs.filter((/** @type {any} */ job) => job.leaving.length).map((/** @type {any} */ job) => h("li", {}, `${job.name} of ${queue.name} takes the place of `, ...job.leaving.slice(0, 4).map((/** @type {string} */ pod) => [objectLink("Pod", pod), " "]), job.leaving.length > 4 ? `and ${job.leaving.length - 4} more` : null)));
    this.body.replaceChildren(
      h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "Queues" }, h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Queues and their shares"),
        h("thead", {}, h("tr", {}, ...[["Queue"], ["Resource"], ["Deserved"], ["Limit", "wide"], ["Fair share"], ["Allocated"], ["Pending"]].map(([text, size]) => h("th", { scope: "col", class: size || "" }, text)))), h("tbody", {}, ...rows))),
      h("h2", {}, "Who borrows from whom"),
      borrowers.length || owed.length || leaving.length ? h("ul", {}, ...borrowers.map((each) => sentence(each, "holds more than it deserves, by")), ...owed.map((each) => sentence(each, "is owed")), ...leaving) : h("p", { class: "soft" }, "Nobody holds more than it deserves, and nobody is owed anything."),
      ...Object.entries(strays).map(([queue, jobs]) => h("p", { class: "note" }, `queue “${queue}” does not exist: ${jobs.join(", ")} ${jobs.length === 1 ? "waits" : "wait"}`)));
    this.go(this.app.params, true);
  }

  /** @param {any} params @param {boolean} [quiet] */
  go(params, quiet) {
    const queue = this.answer?.queues.find((/** @type {any} */ each) => each.name === params.queue);
    if (!queue) { this.detail.replaceChildren(); return; }
    const heading = h("h2", { tabindex: "-1" }, queue.name), answer = h("div", { class: "answer" });
    const jobs = queue.jobs.map((/** @type {any} */ job) => h("tr", {}, h("th", { scope: "row" }, job.name), h("td", {}, String(job.priority)), h("td", {}, String(job.running)), h("td", {}, String(job.waiting)), h("td", { class: "wide" }, job.asks), h("td", {}, job.reason || "–")));
    this.detail.replaceChildren(heading, jobs.length ? h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "Jobs" }, h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Jobs in their order"), h("thead", {}, h("tr", {}, ...[["Job"], ["Priority"], ["Running"], ["Waiting"], ["Asks for", "wide"], ["Why it waits"]].map(([text, size]) => h("th", { scope: "col", class: size || "" }, text)))), h("tbody", {}, ...jobs))) : h("p", { class: "soft" }, `No pods are in it${queue.depth ? "" : "; those of the queues below it are listed there"}.`), answer);
    if (!quiet) heading.focus();
    if (queue.jobs.some((/** @type {any} */ job) => job.waiting)) explainInto(answer, { kind: "queue", ns: "", name: queue.name }, () => this.app.params.queue === queue.name);
  }

  escape() { if (!this.app.params.queue) return false; this.app.set({ queue: "" }); this.go(this.app.params); return true; }
  end() { clearTimeout(this.later); }
}
