// @ts-check
// How much was in use when, who held which device, and what happened.
import { duration, h, href, moment, objectLink, plural, seconds, svg } from "../dom.js";
import { colourOf } from "../heat.js";
import { get } from "../store.js";

export const title = "Timeline";
export const tables = ["events"];
const HEIGHT = 200, LEFT = 44, RIGHT = 8, BOTTOM = 24;
const BANDS = /** @type {const} */ ([[3, "in use", "u"], [2, "partly in use", "p"], [4, "unavailable", "x"], [1, "free", "f"]]);
const SPANS = [["", "All"], ["300", "5 m"], ["3600", "1 h"], ["86400", "1 d"]];
const MARKS_MAX = 300, SPANS_MAX = 60;
const clock = (/** @type {number} */ at) => new Date(at * 1000).toISOString().slice(11, 19);
const day = (/** @type {number} */ at) => new Date(at * 1000).toISOString().slice(5, 16).replace("T", " ");

export class Page {
  /** @param {HTMLElement} root @param {any} app */
  constructor(root, app) {
    this.app = app;
    this.chart = h("div", { class: "chart" });
    this.marks = h("section", {});
    this.span = h("select", { "aria-label": "How far back", onchange: () => { app.set({ span: this.span.value, from: "", to: "" }); this.draw(); } }, ...SPANS.map(([value, text]) => h("option", { value }, text)));
    this.span.value = app.params.span || "";
    this.whole = h("button", { type: "button", class: "small", hidden: true, onclick: () => { app.set({ from: "", to: "" }); this.draw(); } }, "Zoom out");
    this.filter = h("input", { type: "search", value: app.params.q || "", placeholder: "Devices: words of node or name", "aria-label": "Filter devices", spellcheck: "false", oninput: () => { app.set({ q: this.filter.value }); clearTimeout(this.later); this.later = setTimeout(() => this.loadHeld(), 200); } });
    this.held = h("div", { class: "gantt" });
    this.one = h("p", { class: "soft", role: "status" }, "Click a bar to see who held the device.");
    const lead = app.about.span ? "The whole recording. Click to see a moment, drag to zoom." : app.about.live ? "Since the dashboard was started; before that, only what claims that are still there tell. Drag to zoom." : "What claims that are in the dump tell: a lower bound. Drag to zoom.";
    root.append(h("h1", {}, "Timeline"), h("div", { class: "controls" }, this.span, this.whole, h("span", { class: "soft" }, lead)), this.chart,
      h("h2", {}, "Who held what"), h("div", { class: "controls" }, this.filter), this.held, this.one, this.marks);
    this.width = 0;
    this.observer = new ResizeObserver(() => { if (this.chart.clientWidth !== this.width) this.draw(); });
    this.observer.observe(this.chart);
    this.load();
    this.timer = setInterval(() => app.about.live && !document.hidden && this.load(), 5000);
  }

  async load() {
    try { this.answer = await get("timeline"); this.draw(); } catch (error) { this.chart.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message)); }
    await this.loadHeld();
  }

  async loadHeld() {
    try { this.holdings = await get("holdings", { q: this.app.params.q }); this.drawHeld(); } catch (error) { this.held.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message)); }
  }

  update() { if (this.app.about.span) this.load(); else this.drawMarks(); }
  /** @param {any} params */
  go(params) { this.span.value = params.span || ""; this.draw(); }

  /** What is shown of the time: where the address says, else the last so many seconds, else all. @param {any[]} all */
  range(all) {
    const { params } = this.app, end = all[all.length - 1][0];
    const from = Number(params.from) || (Number(params.span) ? end - Number(params.span) : this.app.about.span?.from ?? all[0][0]), to = Number(params.to) || end;
    return [from, Math.max(to, from + 1)];
  }

  draw() {
    if (!this.answer) return;
    const { past, samples } = this.answer, width = this.width = this.chart.clientWidth, inner = this.inner = Math.max(200, width - LEFT - RIGHT);
    const last = samples[samples.length - 1] || [0, 0, 0, 0, 0, 0, 0];
    const total = last.slice(1, 5).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    const older = past.map(([at, held]) => [at, Math.max(0, total - held), 0, held, 0, 0, 0]);
    let all = this.app.about.span ? samples : [...older, ...samples];
    if (!all.length || !total) { this.chart.replaceChildren(h("p", { class: "empty" }, "No device was ever seen here. When a driver publishes devices, this shows how many are in use.")); this.one.hidden = true; this.drawMarks(); return; }
    if (all.length === 1) all = [[all[0][0] - 60, ...all[0].slice(1)], all[0]];
    const [from, to] = this.shown = this.range(all);
    this.whole.hidden = !this.app.params.from;
    // What was seen before the range holds at its beginning.
    const before = all.filter(([at]) => at < from).slice(-1).map((each) => [from, ...each.slice(1)]);
    all = [...before, ...all.filter(([at]) => at >= from && at <= to)];
    if (!all.length) all = [[from, ...last.slice(1)]];
    all.push([to, ...all[all.length - 1].slice(1)]);
    const most = Math.max(...all.map((each) => each[1] + each[2] + each[3] + each[4]), 1), pods = Math.max(...all.map((each) => each[5]), 1);
    const x = (/** @type {number} */ at) => LEFT + ((at - from) / (to - from)) * inner, y = (/** @type {number} */ value, of = most) => HEIGHT - BOTTOM - (value / of) * (HEIGHT - BOTTOM - 8);
    const base = all.map(() => 0), areas = [];
    // Steps: what was seen holds until something else was.
    const steps = (/** @type {number[]} */ values) => all.flatMap((each, place) => (place ? [`${x(each[0])},${y(values[place - 1])}`, `${x(each[0])},${y(values[place])}`] : [`${x(each[0])},${y(values[0])}`]));
    for (const [index, , state] of BANDS) {
      const lower = steps(base).reverse();
      all.forEach((each, place) => { base[place] += each[index]; });
      areas.push(svg("polygon", { class: `area ${state}`, points: [...steps(base), ...lower].join(" ") }));
    }
    const known = samples[0]?.[0] ?? to, seen = all.filter(([at]) => at >= known);
    const waiting = seen.flatMap((each, place) => [`${x(each[0])},${y(place ? seen[place - 1][5] : each[5], pods)}`, `${x(each[0])},${y(each[5], pods)}`]).join(" ");
    const ticks = (inner < 500 ? [0, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => svg("text", { x: LEFT + inner * part, y: HEIGHT - 6, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, part === 1 ? `${day(to)} UTC` : `−${duration((to - from) * (1 - part))}`));
    const levels = [0, 0.5, 1].map((part) => svg("text", { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, Math.round(most * part).toLocaleString("en")));
    const words = `${last[3] + last[2]} of ${plural(total, "device")} in use, ${last[1]} free, ${plural(last[5], "pod waits", "pods wait")}`;
    const upright = (/** @type {number} */ at, /** @type {string} */ name) => (at >= from && at <= to ? svg("line", { class: name, x1: x(at), x2: x(at), y1: 8, y2: HEIGHT - BOTTOM }) : "");
    const happened = this.all().filter((mark) => mark.at >= from && mark.at <= to).slice(0, MARKS_MAX).map((mark) => svg("line", { class: mark.warn ? "mark warn" : "mark", x1: x(mark.at), x2: x(mark.at), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + (mark.warn ? 8 : 5) }));
    this.brush = svg("rect", { class: "brush", y: 8, height: HEIGHT - BOTTOM - 8, width: 0 });
    const picture = svg("svg", { viewBox: `0 0 ${LEFT + inner + RIGHT} ${HEIGHT}`, role: "img", "aria-label": `Devices over time. At the end: ${words}.` }, ...areas, known > from ? upright(known, "first") : "", svg("polyline", { class: "waiting", points: waiting }), ...happened, this.app.about.span ? upright(Number(moment.at) || to, "now") : "", this.brush, ...ticks, ...levels);
    this.zoomable(picture);
    const key = (/** @type {string} */ state, /** @type {string} */ text) => h("span", { class: "key" }, h("span", { class: `swatch ${state}`, "aria-hidden": "true" }), text);
    this.chart.replaceChildren(picture, h("p", { class: "legend" }, ...BANDS.map(([, text, state]) => key(state, text)), key("line", `pods that wait, at most ${pods}`), key("tick", "what happened")), h("p", {}, `${this.app.about.span ? "At the end" : "Now"}: ${words}.`));
    this.drawMarks();
    this.drawHeld();
  }

  /** A drag chooses a part of the time; a click a moment of a recording. @param {SVGElement} picture */
  zoomable(picture) {
    const at = (/** @type {PointerEvent} */ event) => { const box = picture.getBoundingClientRect(); return Math.max(0, Math.min(this.inner, event.clientX - box.left - LEFT)); };
    const time = (/** @type {number} */ place) => this.shown[0] + (place / this.inner) * (this.shown[1] - this.shown[0]);
    /** @type {number | null} */
    let start = null;
    picture.addEventListener("pointerdown", (event) => { start = at(event); picture.setPointerCapture(event.pointerId); });
    picture.addEventListener("pointermove", (event) => { if (start === null) return; const here = at(event); this.brush.setAttribute("x", String(LEFT + Math.min(start, here))); this.brush.setAttribute("width", String(Math.abs(here - start))); });
    picture.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const [one, other] = [Math.min(start, at(event)), Math.max(start, at(event))];
      start = null;
      if (other - one > 6) { this.app.set({ from: Math.floor(time(one)), to: Math.ceil(time(other)) }); this.draw(); } else if (this.app.player) this.app.player.go(time(one));
    });
  }

  drawHeld() {
    if (!this.holdings || !this.shown) return;
    const { rows, more } = this.holdings, [from, to] = this.shown;
    if (!rows.length) { this.held.replaceChildren(h("p", { class: "empty" }, this.app.params.q ? "No device has these words." : "No device was ever seen here.")); this.one.hidden = true; return; }
    this.one.hidden = false;
    const left = (/** @type {number} */ at) => `${(Math.max(0, Math.min(1, (at - from) / (to - from))) * 100).toFixed(3)}%`;
    const line = (/** @type {any} */ row) => {
      const spans = row.spans.filter((/** @type {any} */ [start, end]) => start < to && (end ?? to) > from).slice(-SPANS_MAX), name = row.device.split("/").slice(-2).join("/");
      const words = spans.map((/** @type {any} */ [start, end, claim]) => `${claim} from ${day(start)}${end === null ? "" : ` to ${day(end)}`}`).join("; ") || "free";
      const bars = spans.map((/** @type {any} */ [start, end, claim]) => h("span", { class: "held", title: `${claim}, ${duration((end ?? to) - start)}`, onclick: () => this.tell(name, start, end, claim), style: { left: left(start), right: `calc(100% - ${left(end ?? to)})`, background: colourOf(claim.split("/")[0]) } }));
      return h("tr", {}, h("th", { scope: "row" }, row.node ? h("a", { href: href("cluster", { node: row.node, device: row.device }) }, name) : name), h("td", {}, h("div", { class: "track", "aria-hidden": "true" }, ...bars), h("span", { class: "unseen" }, words)));
    };
    const namespaces = [...new Set(rows.flatMap((/** @type {any} */ row) => row.spans.map((/** @type {any} */ span) => span[2].split("/")[0])))].sort();
    this.held.replaceChildren(h("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": "Who held what" }, h("table", {}, h("caption", { class: "unseen" }, "Devices and who held them"), h("tbody", {}, ...rows.map(line)))),
      h("p", { class: "legend" }, ...namespaces.slice(0, 12).map((name) => h("span", { class: "key" }, h("span", { class: "swatch", "aria-hidden": "true", style: { background: colourOf(name) } }), name)), more ? h("span", { class: "key soft" }, `and ${plural(more, "device")} more: filter to see others`) : ""));
  }

  /** @param {string} name @param {number} start @param {number | null} end @param {string} claim */
  tell(name, start, end, claim) {
    this.one.replaceChildren(`${name}: held by claim `, objectLink("ResourceClaim", claim), ` from ${day(start)} ${end === null ? "until now" : `to ${day(end)}`}, ${duration((end ?? this.shown[1]) - start)}.`);
  }

  /** What is known to have happened, the newest first. */
  all() {
    const marks = (this.answer?.marks || []).map((/** @type {any} */ [at, what, key]) => ({ at, what, kind: "Pod", key }));
    for (const row of this.app.store.tables.events.values()) marks.push({ at: seconds(row.at), what: row.reason, kind: row.kind, key: row.kind === "Node" ? row.name : `${row.ns}/${row.name}`, msg: row.msg, warn: row.warn });
    return marks.sort((/** @type {any} */ a, /** @type {any} */ b) => (b.at || 0) - (a.at || 0));
  }

  drawMarks() {
    const marks = this.all();
    this.marks.replaceChildren(h("h2", {}, "What happened"), marks.length ? h("ol", { class: "marks" }, ...marks.slice(0, 80).map((/** @type {any} */ mark) => h("li", {}, h("time", {}, Number.isFinite(mark.at) ? clock(mark.at) : ""), " ", h("strong", {}, mark.what), ` ${mark.kind} `, objectLink(mark.kind, mark.key), mark.msg ? h("span", { class: "soft" }, ` ${mark.msg.slice(0, 160)}`) : ""))) : h("p", { class: "soft" }, "Nothing is known."));
  }

  end() { this.observer.disconnect(); clearInterval(this.timer); clearTimeout(this.later); }
}
