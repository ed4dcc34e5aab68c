// @ts-check
// Capacity: what is free and how scattered it is, and what would fit if there were more nodes, or fewer.
import { bar, h, href, percent, plural, say } from "../dom.js";
import { ask } from "../store.js";

export const title = "Capacity";
export const tables = ["nodes", "pods"];

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    // What the address asks for, until machines are there to choose from.
    this.machine = app.params.like?.startsWith("machine:") ? app.params.like : "";
    this.body = h("div", {}, h("p", { class: "note", role: "status" }, "Counting devices by class …"));
    this.outcome = h("div", { class: "outcome", role: "status" });
    const field = (/** @type {string} */ id, /** @type {string} */ text, /** @type {any} */ input) => h("div", { class: "field" }, h("label", { for: id }, text), input);
    this.what = h("select", { id: "what", onchange: () => this.ask() });
    this.count = h("input", { id: "count", type: "range", min: 1, max: 16, value: app.params.count || 1, oninput: () => this.slid() });
    this.like = h("select", { id: "like", onchange: () => this.ask() });
    this.add = h("input", { id: "add", type: "range", min: 0, max: 50, value: app.params.add || 0, oninput: () => this.slid() });
    this.remove = h("input", { id: "remove", type: "text", value: app.params.remove || "", placeholder: "a node, or labels: pool=old", spellcheck: "false", onchange: () => this.ask() });
    this.countText = h("output", { for: "count" }); this.addText = h("output", { for: "add" });
    root.append(h("h1", {}, "Capacity"), this.body, h("h2", {}, "What if"), h("p", { class: "soft" }, "How many more of this would fit, now and on another cluster. Nothing is changed."),
      h("form", { class: "plan", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.ask(); } },
        field("what", "A copy is", this.what), field("count", "Devices of a claim", h("span", {}, this.count, this.countText)), field("like", "More nodes like", this.like), field("add", "How many more", h("span", {}, this.add, this.addText)), field("remove", "Without these nodes", this.remove)), this.outcome);
    this.labels();
    this.update();
  }

  labels() { this.countText.textContent = ` ${this.count.value}`; this.addText.textContent = ` ${this.add.value}`; }
  slid() { this.labels(); clearTimeout(this.sliding); this.sliding = setTimeout(() => this.ask(), 250); }

  update() {
    if (this.asked === this.app.store.now.decisive && this.asked !== undefined) return;
    this.asked = this.app.store.now.decisive;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(), this.answer ? 4000 : 0);
  }

  async load() {
    try {
      await ask("capacity", {}, (answer) => { const first = !this.answer; this.answer = answer; this.draw(); if (first) { this.choices(); this.ask(); this.offer(); } });
    } catch (error) { this.body.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message)); }
  }

  draw() {
    const table = (/** @type {string} */ name, /** @type {any} */ report) => h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": `Devices by ${name}` }, h("table", { class: "plain" }, h("caption", {}, `By ${name}`),
      h("thead", {}, h("tr", {}, ...[[name[0].toUpperCase() + name.slice(1)], ["Free"], ["Partly", "wide"], ["In use", "wide"], ["Unavailable", "wide"], ["Most on one node"], ["Fragmented"]].map(([text, size]) => h("th", { scope: "col", class: size || "" }, text)))),
      h("tbody", {}, report.rows.length ? "" : h("tr", {}, h("td", { colspan: 7, class: "soft" }, name === "class" ? "There are no device classes. Drivers install theirs." : "No driver publishes devices here.")), ...report.rows.map((/** @type {any} */ row) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: href("cluster", { q: name === "model" ? row.name : "" }) }, row.name)), h("td", {}, bar(1 - row.free / (row.total || 1)), ` ${row.free} of ${row.total}`), h("td", { class: "wide" }, String(row.partly)), h("td", { class: "wide" }, String(row.inUse)), h("td", { class: "wide" }, String(row.unavailable)), h("td", {}, String(row.fragmentation.largestBlock)), h("td", {}, bar(row.fragmentation.share, "warn"), ` ${percent(row.fragmentation.share)}`))))));
    const { partitions } = this.answer;
    this.body.replaceChildren(h("p", { class: "soft" }, "Fragmented is the share of free devices on nodes that have too few of them for a typical request."), table("class", this.answer.class), table("model", this.answer.model),
      partitions.length ? h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "Partitions" }, h("table", { class: "plain" }, h("caption", {}, "Partitions: how many more of each kind alone"), h("thead", {}, h("tr", {}, ...["Model", "Partition", "In use", "More fit"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...partitions.map((/** @type {any} */ part) => h("tr", {}, h("th", { scope: "row" }, part.model), h("td", {}, part.partition), h("td", {}, String(part.inUse)), h("td", {}, String(part.fits))))))) : "");
  }

  choices() {
    const { params, store } = this.app;
    const waiting = new Map();
    for (const [key, row] of store.tables.pods) if (row.shape && !waiting.has(row.shape)) waiting.set(row.shape, key);
    const pods = [...waiting.values()].slice(0, 30);
    this.what.replaceChildren(...this.answer.class.rows.map((/** @type {any} */ row) => h("option", { value: `class:${row.name}` }, `a claim for ${row.name}`)), ...pods.map((key) => h("option", { value: `pod:${key}` }, `a pod like ${key}`)));
    // One node of each form is enough to choose from.
    const forms = new Map();
    for (const [name, row] of store.tables.nodes) {
      const form = `${row.dev.map((/** @type {any} */ pool) => `${pool.d.length} × ${pool.m || pool.driver}`).join(", ")}`;
      if (row.at !== undefined && form && !forms.has(form)) forms.set(form, name);
    }
    const given = params.like && store.tables.nodes.has(params.like) && ![...forms.values()].includes(params.like) ? [["as the address says", params.like]] : [];
    this.like.replaceChildren(...[...given, ...forms].map(([form, name]) => h("option", { value: name }, `${name} (${form})`)));
    if (params.what) this.what.value = params.what;
    if (params.like && given.length) this.like.value = params.like;
    else if ([...forms.values()].includes(params.like)) this.like.value = params.like;
  }

  /** Machines that are not there yet, below the nodes that are. */
  async offer() {
    await ask("machines", {}, (machines) => {
      this.like.querySelector("optgroup")?.remove();
      if (!machines.length) return;
      const option = (/** @type {string} */ name, /** @type {string} */ text) => h("option", { value: `machine:${name}` }, text);
      // There are more names than are offered: a model with any number of cards.
      const given = this.machine.slice("machine:".length), isOffered = machines.some((/** @type {any} */ each) => each.name === given);
      this.like.append(h("optgroup", { label: "Machines" }, given && !isOffered ? option(given, given) : "", ...machines.map((/** @type {any} */ each) => option(each.name, `${each.name} (${each.has})`))));
      if (this.machine) { this.like.value = this.machine; this.machine = ""; this.ask(); }
    }).catch(() => {});
  }

  async ask() {
    if (!this.what.value) { this.outcome.replaceChildren(h("p", { class: "soft" }, "There are no device classes to plan with.")); return; }
    const [kind, name] = [this.what.value.slice(0, this.what.value.indexOf(":")), this.what.value.slice(this.what.value.indexOf(":") + 1)];
    const params = { [kind]: name, count: kind === "class" ? this.count.value : "", like: this.like.value, add: this.add.value, remove: this.remove.value };
    this.app.set({ what: this.what.value, count: this.count.value, like: this.like.value, add: this.add.value, remove: this.remove.value });
    const turn = this.turn = (this.turn || 0) + 1;
    if (!this.outcome.childElementCount) this.outcome.replaceChildren(h("p", { class: "note" }, "Placing copies …"));
    try {
      await ask("plan", params, (answer) => { if (turn === this.turn) this.drawOutcome(answer); });
    } catch (error) { if (turn === this.turn) this.outcome.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message)); }
  }

  /** @param {any} answer */
  drawOutcome({ what, now, then, notes }) {
    const line = (/** @type {string} */ name, /** @type {any} */ result) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(result.nodes)), h("td", {}, `${result.moved} of ${result.moved + result.strandedCount}`), h("td", {}, h("strong", {}, String(result.scheduled))), h("td", {}, result.blocked ? (result.maximum.isExact ? String(result.maximum.copies) : `at most ${result.maximum.copies}`) : `${result.maximum.copies} or more`),
      h("td", { class: "wide" }, result.classes.map((/** @type {any} */ each) => `${each.name}: ${percent(each.fragmentationBefore)} → ${percent(each.fragmentationAfter)}`).join(", ")));
    const last = then || now;
    this.outcome.replaceChildren(h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "What fits" }, h("table", { class: "plain" }, h("caption", {}, `Copies: ${what}`), h("thead", {}, h("tr", {}, ...[["Cluster"], ["Nodes"], ["Waiting pods that start"], ["More copies"], ["At best"], ["Fragmented", "wide"]].map(([text, size]) => h("th", { scope: "col", class: size || "" }, text)))), h("tbody", {}, line("now", now), then ? line("changed", then) : null))),
      last.blocked ? h("p", {}, `The next one is blocked: ${last.blocked.message}`, last.blocked.explanation ? h("span", { class: "soft" }, ` ${last.blocked.explanation}`) : "") : "", ...notes.map((/** @type {string} */ note) => h("p", { class: "soft" }, note)));
    say(`${plural(last.scheduled, "more copy fits", "more copies fit")}`);
  }

  end() { clearTimeout(this.later); clearTimeout(this.sliding); }
}
