// @ts-check
// How much was in use when, and what happened.
import { duration, h, objectLink, plural, seconds, svg } from "../dom.js";
import { get } from "../store.js";

export const title = "Timeline";
export const tables = ["events"];
const WIDTH = 900, HEIGHT = 260, LEFT = 44, BOTTOM = 24;
const BANDS = /** @type {const} */ ([[3, "in use", "u"], [2, "partly in use", "p"], [4, "unavailable", "x"], [1, "free", "f"]]);
const SPANS = [["", "All"], ["300", "5 m"], ["3600", "1 h"], ["86400", "1 d"]];

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.chart = h("div", { class: "chart" });
    this.marks = h("section", {});
    this.span = h("select", { "aria-label": "How far back", onchange: () => { app.set({ span: this.span.value }); this.draw(); } }, ...SPANS.map(([value, text]) => h("option", { value }, text)));
    this.span.value = app.params.span || "";
    root.append(h("h1", {}, "Timeline"), h("p", { class: "lead" }, app.about.live ? "Since the dashboard was started; before that, only what claims that are still there tell." : "What claims that are in the dump tell: a lower bound."), h("div", { class: "controls" }, this.span), this.chart, this.marks);
    this.load();
    this.timer = setInterval(() => app.about.live && !document.hidden && this.load(), 5000);
  }

  async load() {
    try { this.answer = await get("timeline"); this.draw(); } catch (error) { this.chart.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message)); }
  }

  update() { this.drawMarks(); }
  /** @param {any} params */
  go(params) { this.span.value = params.span || ""; this.draw(); }

  draw() {
    if (!this.answer) return;
    const { past } = this.answer;
    const { samples } = this.answer;
    const end = samples.length ? samples[samples.length - 1][0] : 0, span = Number(this.app.params.span || 0);
    const total = samples.length ? samples[samples.length - 1].slice(1, 5).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0) : 0;
    const older = past.map(([at, held]) => [at, Math.max(0, total - held), 0, held, 0, 0, 0]);
    let all = [...older, ...samples];
    if (span) { const first = all.findIndex(([at]) => at >= end - span); all = all.slice(Math.max(0, first - 1)).map((each) => [Math.max(each[0], end - span), ...each.slice(1)]); }
    if (all.length === 1) all = [[all[0][0] - 60, ...all[0].slice(1)], all[0]];
    if (!all.length || !total) { this.chart.replaceChildren(h("p", { class: "empty" }, "No device was ever seen here.")); this.drawMarks(); return; }
    const from = all[0][0], to = Math.max(all[all.length - 1][0], from + 1), most = Math.max(...all.map((each) => each[1] + each[2] + each[3] + each[4]), 1), pods = Math.max(...all.map((each) => each[5]), 1);
    const x = (/** @type {number} */ at) => LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - 8), y = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - 8);
    const base = all.map(() => 0), areas = [];
    for (const [index, , state] of BANDS) {
      const lower = [...base];
      all.forEach((each, place) => { base[place] += each[index]; });
      // Steps: what was seen holds until something else was.
      const upper = all.flatMap((each, place) => (place ? [`${x(each[0])},${y(base[place - 1])}`, `${x(each[0])},${y(base[place])}`] : [`${x(each[0])},${y(base[0])}`]));
      const under = all.flatMap((each, place) => (place ? [`${x(each[0])},${y(lower[place - 1])}`, `${x(each[0])},${y(lower[place])}`] : [`${x(each[0])},${y(lower[0])}`])).reverse();
      areas.push(svg("polygon", { class: `area ${state}`, points: [...upper, ...under].join(" ") }));
    }
    const seen = all.filter(([at]) => at >= (samples[0]?.[0] ?? 0));
    const waiting = seen.flatMap((each, place) => { const at = HEIGHT - BOTTOM - (each[5] / pods) * (HEIGHT - BOTTOM - 8), before = place ? HEIGHT - BOTTOM - (seen[place - 1][5] / pods) * (HEIGHT - BOTTOM - 8) : at; return [`${x(each[0])},${before}`, `${x(each[0])},${at}`]; }).join(" ");
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => svg("text", { x: x(from + (to - from) * part), y: HEIGHT - 6, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, part === 1 ? new Date(to * 1000).toISOString().slice(5, 16).replace("T", " ") : `−${duration((to - from) * (1 - part))}`));
    const levels = [0, 0.5, 1].map((part) => svg("text", { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, Math.round(most * part).toLocaleString("en")));
    const last = all[all.length - 1];
    const words = `${last[3] + last[2]} of ${plural(total, "device")} in use, ${last[1]} free, ${plural(last[5], "pod waits", "pods wait")}`;
    const known = samples[0]?.[0] ?? to;
    this.chart.replaceChildren(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Devices over time. Now: ${words}.` }, ...areas, known > from ? svg("line", { class: "first", x1: x(known), x2: x(known), y1: 8, y2: HEIGHT - BOTTOM }) : "", svg("polyline", { class: "waiting", points: waiting }), ...ticks, ...levels),
      h("p", { class: "legend" }, ...BANDS.map(([, text, state]) => h("span", { class: "key" }, h("span", { class: `swatch ${state}`, "aria-hidden": "true" }), text)), h("span", { class: "key" }, h("span", { class: "swatch line", "aria-hidden": "true" }), `pods that wait, at most ${pods}`)), h("p", {}, `Now: ${words}.`));
    this.drawMarks();
  }

  drawMarks() {
    const marks = (this.answer?.marks || []).map((/** @type {any} */ [at, what, key]) => ({ at, what, kind: "Pod", key }));
    for (const row of this.app.store.tables.events.values()) marks.push({ at: seconds(row.at), what: row.reason, kind: row.kind, key: row.kind === "Node" ? row.name : `${row.ns}/${row.name}`, msg: row.msg });
    marks.sort((/** @type {any} */ a, /** @type {any} */ b) => (b.at || 0) - (a.at || 0));
    this.marks.replaceChildren(h("h2", {}, "What happened"), marks.length ? h("ol", { class: "marks" }, ...marks.slice(0, 80).map((/** @type {any} */ mark) => h("li", {}, h("time", {}, Number.isFinite(mark.at) ? new Date(mark.at * 1000).toISOString().slice(11, 19) : ""), " ", h("strong", {}, mark.what), ` ${mark.kind} `, objectLink(mark.kind, mark.key), mark.msg ? h("span", { class: "soft" }, ` ${mark.msg.slice(0, 160)}`) : ""))) : h("p", { class: "soft" }, "Nothing is known."));
  }

  end() { clearInterval(this.timer); }
}
