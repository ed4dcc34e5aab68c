// @ts-check
// Comes in, finds the page that the address names, keeps it up to date, and listens to the keyboard.
import { byId, h, href, moment, objectLink, say, setClock } from "./dom.js";
import { again, get, load, Refused, Store } from "./store.js";

const PAGES = /** @type {[string, string, string][]} */ ([["cluster", "Cluster", "c"], ["pending", "Pending", "p"], ["claims", "Claims", "l"], ["queues", "Queues", "q"], ["gangs", "Gangs", "a"], ["nodes", "Nodes", "n"], ["capacity", "Capacity", "y"], ["timeline", "Timeline", "t"], ["events", "Events", "e"]]);
const OTHERS = ["object", "graph"];

class App {
  constructor() {
    this.store = new Store((changed, now) => this.changed(changed, now), (text) => this.banner(text), (error) => { this.page?.end?.(); this.page = null; this.trouble = ""; this.banner(""); this.door(error); });
    /** @type {Record<string, string>} */
    this.params = {};
    /** @type {any} */
    this.page = null;
    this.name = "";
    this.trouble = "";
  }

  async start() {
    this.theme(localStorage.getItem("theme") || "");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme(""));
    byId("theme").addEventListener("click", () => this.theme(this.isDark() ? "light" : "dark"));
    byId("nav").append(h("ul", {}, ...PAGES.map(([name, text]) => h("li", {}, h("a", { href: href(name), id: `to-${name}` }, text)))));
    moment.at = new URLSearchParams(this.place().query || "").get("at") || "";
    if (location.hash.startsWith("#token=")) await this.enter(decodeURIComponent(location.hash.slice(7)));
    // What the first page shows is asked for together with what the server says of itself: each way there and back takes its time.
    const ahead = load(`pages/${this.place().name}.js`).then((module) => this.store.ahead(module.tables)).catch(() => { /* The page itself says so, once it is asked for. */ });
    const [isIn] = await Promise.all([this.load(), ahead]);
    if (!isIn) return;
    addEventListener("hashchange", () => this.route());
    document.addEventListener("keydown", (event) => this.key(event));
    byId("help").addEventListener("click", () => this.help());
    new Search();
    await this.route();
    setInterval(() => this.tick(), 10000);
  }

  /** A link's token becomes a cookie, and leaves the address. @param {string} token */
  async enter(token) {
    history.replaceState(null, "", "#/cluster");
    // A first try that was cut off may have got in: then the second one is refused, and the page opens all the same.
    const response = await again(() => fetch("login", { method: "POST", headers: { "X-Allot-Token": token } })).catch(() => null);
    if (!response) return;
    if (!response.ok) this.refused = (await response.json().catch(() => ({}))).error;
  }

  async load() {
    try {
      this.about = await get("about");
    } catch (error) {
      this.door(/** @type {any} */ (error));
      return false;
    }
    const { about } = this;
    this.store.now = about;
    document.title = `allot · ${about.title}`;
    if (!about.live) setClock(() => this.about.takenAt || Date.now() / 1000);
    if (about.span) { const { Player } = await load("player.js"); this.player = new Player(this); }
    const notes = [...about.notes, about.unread.length ? `not all of these may be read: ${about.unread.join(", ")}` : ""].filter(Boolean);
    this.standing = [about.live ? "" : about.span ? `A recording: ${about.title}.` : `A dump: ${about.title}. Nothing here changes.`, ...notes].filter(Boolean).join(" · ");
    this.banner("");
    return true;
  }

  /** Who has no session is told how to get one. @param {Refused} error */
  door(error) {
    const token = h("input", { id: "token", type: "text", autocomplete: "off", spellcheck: "false" });
    byId("nav").hidden = true;
    byId("main").replaceChildren(h("h1", {}, error.status === 401 ? "Come in with the link" : "No answer"), h("p", {}, this.refused || error.message),
      h("p", {}, "Each link that allot dashboard prints works once; after it was used, the next one is printed. allot status shows that of allot up, kubectl logs that of a dashboard in the cluster."),
      h("form", { onsubmit: async (/** @type {Event} */ event) => { event.preventDefault(); await this.enter(token.value.trim().replace(/^.*#token=/, "")); location.reload(); } }, h("label", { for: "token" }, "Link or token "), token, " ", h("button", {}, "Come in")));
  }

  /** @param {string} text */
  banner(text) {
    this.trouble = text;
    const shown = [text, this.store.now.stale, this.standing].filter(Boolean).join(" · "), banner = byId("banner");
    banner.hidden = !shown;
    if (banner.textContent !== shown) banner.textContent = shown;
    banner.classList.toggle("warn", Boolean(text || this.store.now.stale));
  }

  // --- pages ---

  /** What the address names. */
  place() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    return { name: PAGES.some(([each]) => each === path) || OTHERS.includes(path) ? path : "cluster", query };
  }

  async route() {
    const { name, query } = this.place();
    this.params = Object.fromEntries(new URLSearchParams(query || ""));
    // Who goes to another page stays at the moment that is shown.
    if (this.player && !this.params.at && moment.at) { this.params.at = moment.at; history.replaceState(null, "", href(name, this.params)); }
    if (this.player && this.params.at && this.params.at !== moment.at) await this.player.show(this.params.at);
    if (this.page && this.name === name) { this.page.go?.(this.params); return; }
    const turn = this.turn = (this.turn || 0) + 1;
    let module;
    try {
      module = await load(`pages/${name}.js`);
      await this.store.want(module.tables, this.about.live);
    } catch (error) {
      if (turn !== this.turn) return;
      if (/** @type {any} */ (error).status === 401) { this.door(/** @type {any} */ (error)); return; }
      this.page?.end?.();
      this.page = null;
      byId("main").replaceChildren(h("h1", {}, PAGES.find(([each]) => each === name)?.[1] || name), h("p", { class: "note" }, /** @type {any} */ (error).message));
      return;
    }
    if (turn !== this.turn) return;
    this.page?.end?.();
    const root = byId("main"), first = !this.page;
    root.replaceChildren();
    this.name = name;
    for (const [each] of PAGES) byId(`to-${each}`).toggleAttribute("aria-current", false);
    byId(`to-${name}`)?.setAttribute("aria-current", "page");
    byId(`to-${name}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    document.title = `${module.title} · allot · ${this.about.title}`;
    this.page = new module.Page(root, this);
    if (!first) { scrollTo(0, 0); root.focus({ preventScroll: true }); say(`${module.title} page`); }
    document.documentElement.dataset.ready = name;
    // For whoever measures: when the first page could be seen.
    if (first) requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("shown")));
  }

  /** Change the address without another entry in the history, unless asked for. @param {Record<string, any>} params */
  set(params, entry = false) {
    const next = { ...this.params, at: moment.at, ...params };
    for (const key of Object.keys(next)) if (next[key] === "" || next[key] === undefined || next[key] === null) delete next[key];
    this.params = next;
    history[entry ? "pushState" : "replaceState"](null, "", href(this.name, next));
  }

  /** @param {Map<string, Set<string>>} changed @param {any} now */
  changed(changed, now) {
    this.banner("");
    this.tell(changed);
    this.page?.update?.(changed);
    // For whoever measures: how long the last update took.
    document.documentElement.dataset.update = String(Math.round((performance.now() - this.store.began) * 10) / 10);
    document.documentElement.dataset.revision = String(now.revision);
  }

  /** In one line, what has changed, for those who cannot see it. @param {Map<string, Set<string>>} changed */
  tell(changed) {
    const pods = changed.get("pods");
    if (!pods || pods.size > 200) return;
    const waiting = [...pods].filter((key) => this.store.tables.pods.get(key)?.shape).length, running = [...pods].filter((key) => this.store.tables.pods.get(key)?.s === "Running").length;
    const words = [waiting ? `${waiting} ${waiting === 1 ? "pod waits" : "pods wait"}` : "", running ? `${running} ${running === 1 ? "pod runs" : "pods run"}` : ""].filter(Boolean).join(", ");
    if (words) say(words);
  }

  /** Ages grow also where nothing happens. */
  tick() {
    if (!this.about.live || document.hidden) return;
    for (const list of [this.page?.list].filter(Boolean)) list.draw(true);
  }

  // --- keyboard, theme ---

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") {
      if (byId("shortcuts")?.open) return;
      if (this.page?.escape?.()) event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || /** @type {any} */ (event.target).closest?.("input, select, textarea")) return;
    if (this.leading) {
      this.leading = false;
      const found = PAGES.find(([, , letter]) => letter === event.key);
      if (found) { event.preventDefault(); location.hash = href(found[0]); }
      return;
    }
    if (event.key === "g") { this.leading = true; setTimeout(() => { this.leading = false; }, 1500); }
    else if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
    else if (event.key === "?") this.help();
    else if ((event.key === "," || event.key === ".") && this.player) this.player.step(event.key === "." ? "after" : "before");
    else if (event.key === "f") { const filter = byId("main").querySelector("input[type=search]"); if (filter) { event.preventDefault(); filter.focus(); } }
    else if ((event.key === "j" || event.key === "k") && this.page?.list && !(/** @type {any} */ (event.target).closest?.(".scroll"))) { event.preventDefault(); this.page.list.key(event); }
  }

  help() {
    byId("shortcuts")?.remove();
    const rows = [...PAGES.map(([, text, letter]) => [`g ${letter}`, text]), ["/", "Search"], ["f", "Filter the list"], ["j k", "Next and previous row"], ["↑ ↓ ← →", "From device to device in the heat map"], ["Enter", "Open"], ["Esc", "Close"], ...(this.player ? [[", .", "Previous and next change of the recording"]] : []), ["?", "This help"]];
    const dialog = h("dialog", { id: "shortcuts", "aria-labelledby": "shortcuts-title" }, h("h2", { id: "shortcuts-title" }, "Keyboard"), h("dl", {}, ...rows.map(([keys, text]) => [h("dt", {}, ...keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, text)])), h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
    document.body.append(dialog);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
  }

  isDark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  /** @param {string} theme */
  theme(theme) {
    if (theme) { document.documentElement.dataset.theme = theme; localStorage.setItem("theme", theme); }
    byId("theme").textContent = this.isDark() ? "Light" : "Dark";
    this.page?.heat?.recolour();
  }
}

class Search {
  constructor() {
    this.input = byId("search");
    this.list = byId("found");
    this.chosen = -1;
    this.input.addEventListener("input", () => { clearTimeout(this.later); this.later = setTimeout(() => this.find(), 150); });
    this.input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => { if (!this.list.contains(document.activeElement)) this.close(); }, 150));
  }

  async find() {
    const text = this.input.value.trim();
    if (!text) { this.close(); return; }
    const { found, more } = await get("search", { q: text }).catch(() => ({ found: [], more: 0 }));
    if (text !== this.input.value.trim()) return;
    this.chosen = -1;
    this.list.replaceChildren(...found.map((/** @type {any} */ each, /** @type {number} */ place) => this.option(each, place)), ...(found.length ? [] : [h("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "Nothing has that name.")]), ...(more ? [h("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, `and ${more} more`)] : []));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    say(`${found.length} found`);
  }

  /** @param {any} each @param {number} place */
  option(each, place) {
    const address = each.kind === "Gang" ? href("gangs", { gang: each.name }) : each.kind === "Device" ? href("cluster", { node: each.node, device: each.name }) : objectLink(each.kind, each.name).getAttribute("href");
    return h("li", { role: "option", id: `found-${place}`, "aria-selected": "false", "data-to": address, onpointerdown: (/** @type {Event} */ event) => { event.preventDefault(); this.go(address); } }, h("span", { class: "soft" }, `${each.kind} `), each.name);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const options = [...this.list.querySelectorAll("[data-to]")];
    if (event.key === "Escape") { this.input.value = ""; this.close(); byId("main").focus(); }
    else if (event.key === "Enter" && options.length) this.go(options[Math.max(0, this.chosen)].dataset.to);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!options.length) return;
      options[this.chosen]?.setAttribute("aria-selected", "false");
      this.chosen = (this.chosen + (event.key === "ArrowDown" ? 1 : options.length - 1) + (this.chosen < 0 && event.key === "ArrowUp" ? 1 : 0)) % options.length;
      options[this.chosen].setAttribute("aria-selected", "true");
      options[this.chosen].scrollIntoView({ block: "nearest" });
      this.input.setAttribute("aria-activedescendant", options[this.chosen].id);
    }
  }

  /** @param {string} address */
  go(address) { this.input.value = ""; this.close(); this.input.blur(); location.hash = address; }
  close() { this.list.hidden = true; this.list.replaceChildren(); this.input.setAttribute("aria-expanded", "false"); this.input.removeAttribute("aria-activedescendant"); }
}

new App().start();
