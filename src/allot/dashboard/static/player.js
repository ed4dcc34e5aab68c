// @ts-check
// A recording: which moment of it is shown, chosen by a slider, step by step, or played.
import { byId, duration, h, moment, say } from "./dom.js";
import { get } from "./store.js";

// How long the whole of a recording plays, and how often another moment is shown meanwhile.
const PLAYS_S = 60, EVERY_MS = 1000;
const time = (/** @type {number} */ at) => new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ");

export class Player {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.slider = h("input", { type: "range", "aria-label": "Moment of the recording", step: "any", oninput: () => { this.label(Number(this.slider.value)); clearTimeout(this.later); this.later = setTimeout(() => this.go(Number(this.slider.value)), 120); } });
    this.text = h("output", {});
    this.playing = h("button", { type: "button", class: "small", onclick: () => this.play() }, "Play");
    const step = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {string} */ text) => h("button", { type: "button", class: "small", "aria-label": text, title: text, onclick: () => this.step(name) }, sign);
    this.bar = h("section", { class: "player", "aria-label": "Recording" }, this.playing, step("before", "‹", "Previous change"), this.slider, step("after", "›", "Next change"), this.text);
    byId("banner").after(this.bar);
    this.settle();
  }

  settle() {
    const { from, to, at } = this.app.about.span;
    Object.assign(this.slider, { min: String(from), max: String(Math.max(to, from + 1)) });
    this.slider.value = String(at);
    this.label(at);
  }

  /** @param {number} at */
  label(at) {
    const { from, to } = this.app.about.span;
    this.text.textContent = `${time(at)} · ${duration(at - from)} of ${duration(to - from)}`;
    this.slider.setAttribute("aria-valuetext", time(at));
  }

  /** @param {string} name */
  step(name) { this.go(this.app.about.span[name]); }

  /** Show a moment, and say so in the address. @param {number} at */
  async go(at) {
    const text = at >= this.app.about.span.to ? "" : String(Math.round(at * 1000) / 1000);
    moment.at = text;
    this.app.set({ at: text });
    await this.show(text);
  }

  /** @param {string} at */
  async show(at) {
    const turn = this.turn = (this.turn || 0) + 1;
    moment.at = at;
    try {
      const about = await get("about");
      if (turn !== this.turn) return;
      this.app.about = about;
      this.settle();
      await this.app.store.move(about);
      if (turn === this.turn && !this.timer) say(`shown as of ${time(about.span.at)}`);
    } catch (error) { this.stop(); this.app.banner(/** @type {any} */ (error).message); }
  }

  play() {
    if (this.timer) { this.stop(); return; }
    const { from, to, at } = this.app.about.span;
    let next = at >= to ? from : at;
    this.playing.textContent = "Pause";
    const tick = async () => {
      next = Math.min(to, next + ((to - from) * EVERY_MS) / 1000 / PLAYS_S);
      await this.go(next);
      if (next >= to || !this.timer) this.stop(); else this.timer = setTimeout(tick, EVERY_MS);
    };
    this.timer = setTimeout(tick, 0);
  }

  stop() { clearTimeout(this.timer); this.timer = 0; this.playing.textContent = "Play"; }
}
