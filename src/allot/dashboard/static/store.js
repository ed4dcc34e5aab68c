// @ts-check
// What this page knows of the cluster: rows of tables, loaded once and kept up to date by one stream.
import { moment } from "./dom.js";

/** A failure that the server explains. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) { super(message); this.status = status; }
}

/** A browser aborts requests when the machine's network changes, as it does when a container starts there: what was cut off is tried again.
 * @template T @param {(attempt: number) => Promise<T>} work @returns {Promise<T>} */
export async function again(work) {
  for (const [attempt, pause] of [200, 1000].entries()) {
    try {
      return await work(attempt);
    } catch {
      await new Promise((done) => setTimeout(done, pause));
    }
  }
  return work(2);
}

/** A module of the dashboard's own. Some browsers keep a failure under the address that failed, so that another try has another address.
 * @param {string} path @returns {Promise<any>} */
export function load(path) {
  return again((attempt) => import(attempt ? `./${path}?again=${attempt}` : `./${path}`)).catch(() => { throw new Refused(0, `${path} of the dashboard could not be loaded: it may have ended; if it runs, load this page again`); });
}

/** @param {string} path @param {Record<string, any>} [params] */
export async function get(path, params) {
  const query = new URLSearchParams(Object.entries({ at: moment.at, ...params }).filter(([, value]) => value !== undefined && value !== "")).toString();
  const response = await again(() => fetch(`api/${path}${query ? `?${query}` : ""}`, { headers: { Accept: "application/json" } }))
    .catch(() => { throw new Refused(0, "the dashboard does not answer: it may have ended"); });
  const value = await response.json().catch(() => ({ error: response.statusText }));
  if (!response.ok) throw new Refused(response.status, value.error || response.statusText);
  return value;
}

/** Ask what takes long: an older answer at once if there is one, then the answer of now.
 * @param {string} question @param {Record<string, any>} params @param {(answer: any, fresh: boolean) => void} show */
export async function ask(question, params, show) {
  const first = await get(`ask/${question}`, params);
  if (first.error) throw new Refused(200, first.error);
  show(first.answer, first.fresh);
  if (first.fresh) return;
  const second = await get(`ask/${question}`, { ...params, fresh: 1 });
  if (second.error) throw new Refused(200, second.error);
  show(second.answer, true);
}

export class Store {
  /** @param {(changed: Map<string, Set<string>>, now: any) => void} told @param {(text: string) => void} troubled @param {(error: Refused) => void} out */
  constructor(told, troubled, out) {
    /** @type {Record<string, Map<string, any>>} */
    this.tables = {};
    /** @type {Record<string, number>} */
    this.revisions = {};
    /** @type {string[]} */
    this.wanted = [];
    /** @type {any} */
    this.now = {};
    this.told = told;
    this.troubled = troubled;
    this.out = out;
    /** @type {EventSource | null} */
    this.stream = null;
    document.addEventListener("visibilitychange", () => this.follow());
  }

  /** Have these tables, and follow them from now on. @param {string[]} names @param {boolean} live */
  async want(names, live) {
    // What was not followed meanwhile may be old; a dump never is.
    const missing = names.filter((name) => !this.tables[name] || (live && !this.wanted.includes(name)));
    await Promise.all(missing.map((name) => this.load(name)));
    this.wanted = names;
    this.live = live;
    this.follow(true);
  }

  /** Load tables before it is known who asks; if that fails, whoever wants them is told. @param {string[]} names */
  async ahead(names) {
    try {
      await Promise.all(names.map((name) => this.load(name)));
      this.wanted = names;
    } catch { /* asked again by want */ }
  }

  /** @param {string} name */
  async load(name) {
    const { revision, rows } = await get(`rows/${name}`);
    this.tables[name] = new Map(Object.entries(rows));
    this.revisions[name] = revision;
  }

  /** Another moment of a recording is shown: everything anew, also what is gone by then. @param {any} now */
  async move(now) {
    const before = this.tables, names = this.wanted;
    this.tables = {};
    await Promise.all(names.map((name) => this.load(name)));
    this.now = now;
    this.began = performance.now();
    this.told(new Map(names.map((name) => [name, new Set([...(before[name]?.keys() || []), ...this.tables[name].keys()])])), now);
  }

  follow(anew = false) {
    const wanted = this.live && !document.hidden;
    if (this.stream && (anew || !wanted)) { this.stream.close(); this.stream = null; }
    if (!wanted || this.stream) return;
    const since = Math.min(...this.wanted.map((name) => this.revisions[name]), Number.MAX_SAFE_INTEGER);
    const stream = new EventSource(`api/stream?tables=${this.wanted.join(",")}&since=${this.wanted.length ? since : 0}`);
    this.stream = stream;
    stream.onopen = () => this.troubled("");
    stream.onmessage = (event) => this.take(event.data);
    stream.onerror = () => {
      this.troubled("The dashboard does not answer. Trying again …");
      // A browser gives up where the answer was no; whether it still is, is asked again.
      if (stream.readyState === EventSource.CLOSED) setTimeout(async () => {
        // The session may have ended meanwhile: then only another link helps.
        const error = await get("about").then(() => null, (/** @type {Refused} */ found) => found);
        if (this.stream !== stream) return;
        if (error?.status === 401) { this.stream = null; this.live = false; this.out(error); } else this.follow(true);
      }, 3000);
    };
  }

  /** @param {string} message */
  async take(message) {
    this.began = performance.now();
    const { now, tables } = JSON.parse(message);
    /** @type {Map<string, Set<string>>} */
    const changed = new Map();
    for (const [name, rows] of Object.entries(tables)) {
      const table = this.tables[name];
      if (!table) continue;
      changed.set(name, new Set(Object.keys(rows)));
      for (const [key, row] of Object.entries(rows)) if (row === null) table.delete(key); else table.set(key, row);
      this.revisions[name] = now.revision;
    }
    for (const name of now.reset || []) {
      await this.load(name);
      changed.set(name, new Set(this.tables[name].keys()));
    }
    this.now = now;
    this.told(changed, now);
  }
}
