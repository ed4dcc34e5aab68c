// @ts-check
// Elements, texts and times. Nothing here takes HTML: texts stay texts, whatever a cluster calls its objects.

const SVG = "http://www.w3.org/2000/svg";

/** @param {Element} element @param {any} props @param {any[]} children */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) /** @type {any} */ (element).style.setProperty(key, part);
    else if (name === "value" || name === "checked") /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return element;
}

/** @param {string} tag @param {any} [props] @param {...any} children @returns {any} */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
/** @param {string} tag @param {any} [props] @param {...any} children @returns {any} */
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** Tell whoever listens instead of looking. @param {string} text */
export function say(text) {
  byId("said").textContent = text;
}

/** @param {number} count @param {string} word @param {string} [many] */
export const plural = (count, word, many) => `${count.toLocaleString("en")} ${count === 1 ? word : many || `${word}s`}`;

/** An age in words: 3 m, 2 h 5 m, 4 d. @param {number} seconds */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} m`;
  const hours = Math.floor(m / 60);
  if (hours < 24) return m % 60 && hours < 6 ? `${hours} h ${m % 60} m` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

let now = () => Date.now() / 1000;
/** In a dump it is always the time when it was taken. @param {() => number} clock */
export function setClock(clock) { now = clock; }

/** @param {string | number | undefined | null} at */
export const seconds = (at) => (typeof at === "number" ? at : at ? Date.parse(at) / 1000 : NaN);

/** How long ago, with the time itself on hover. @param {string | number | undefined | null} at */
export function ago(at) {
  const s = seconds(at);
  if (Number.isNaN(s)) return h("span", {}, "–");
  const date = new Date(s * 1000).toISOString();
  return h("time", { datetime: date, title: date }, duration(now() - s));
}

/** Bytes for people. @param {number} bytes */
export function memory(bytes) {
  const units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1).replace(/\.0$/, "")}${unit ? units[unit] : ""}`;
}

/** Which moment of a recording is shown, in seconds since 1970; nothing where there is only now. */
export const moment = { at: "" };

/** An address within the dashboard. @param {string} page @param {Record<string, any>} [params] */
export function href(page, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries({ at: moment.at, ...params })) if (value !== undefined && value !== null && value !== "") query.set(key, String(value));
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** @param {string} page @param {Record<string, any>} params @param {...any} children */
export const link = (page, params, ...children) => h("a", { href: href(page, params) }, ...children);

/** A link to an object by its kind and `namespace/name`. @param {string} kind @param {string} key @param {any} [text] */
export function objectLink(kind, key, text) {
  const cut = kind === "Device" ? -1 : key.indexOf("/");
  const ns = cut < 0 ? "" : key.slice(0, cut), name = cut < 0 ? key : key.slice(cut + 1);
  return link("object", { kind, ns, name }, text || key);
}

/** A word in a box whose colour only repeats what the word says. @param {string} text @param {string} [tone] */
export const badge = (text, tone) => h("span", { class: `badge ${tone || ""}` }, text);

/** @param {string} text @param {string} [label] */
export function copyButton(text, label) {
  const button = h("button", { type: "button", class: "small", onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    say("copied");
  } }, label || "Copy");
  return button;
}

/** Offer a text as a file. @param {string} name @param {string} text @param {string} type */
function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Offer rows as a file of CSV, or of JSON: an object for each row. @param {string} name @param {string[]} headers @param {any[][]} rows @param {boolean} [json] */
export function download(name, headers, rows, json) {
  if (json) { save(`${name}.json`, JSON.stringify(rows.map((row) => Object.fromEntries(headers.map((header, place) => [header, row[place]]))), null, 1), "application/json"); return; }
  // A cell that begins like a formula stays a text in spreadsheets.
  const cell = (/** @type {any} */ value) => `"${String(value ?? "").replace(/^([=+\-@\t\r])/, "'$1").replaceAll('"', '""')}"`;
  save(`${name}.csv`, [headers, ...rows].map((row) => row.map(cell).join(",")).join("\r\n"), "text/csv");
}

/** Attributes and capacity of a device as a table. @param {any} tree */
export function deviceTable(tree) {
  const row = (/** @type {string} */ key, /** @type {string} */ value) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, value));
  return h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Attributes and capacity"), h("tbody", {},
    ...Object.entries(tree.capacity).map(([key, value]) => row(key, value)), ...Object.entries(tree.attributes).map(([key, value]) => row(key, String(Object.values(/** @type {any} */ (value))[0])))));
}

/** A share of a whole as a bar; the text beside it says the same. @param {number} share @param {string} [tone] */
export const bar = (share, tone) => h("span", { class: `bar ${tone || ""}`, "aria-hidden": "true" },
  h("span", { style: { width: `${Math.max(0, Math.min(1, share || 0)) * 100}%` } }));

/** @param {number} share */
export const percent = (share) => `${Math.round(share * 100)} %`;
