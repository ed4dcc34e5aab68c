// @ts-check
// An explanation as `allot explain` gives it: the cause, what would help, and which filter took how many devices away.
import { bar, copyButton, h, objectLink, plural } from "./dom.js";
import { ask } from "./store.js";

/** Ask, and show what comes. @param {HTMLElement} root @param {Record<string, string>} params @param {() => boolean} [wanted] */
export async function explainInto(root, params, wanted = () => true) {
  if (!root.childElementCount) root.replaceChildren(h("p", { class: "note", role: "status" }, "Working out the cause and trying out remedies …"));
  try {
    await ask("explain", params, (answer, fresh) => { if (wanted()) root.replaceChildren(...explanation(answer, fresh)); });
  } catch (error) {
    if (wanted()) root.replaceChildren(h("p", { class: "note" }, /** @type {any} */ (error).message));
  }
}

/** @param {any} found @param {boolean} fresh */
export function explanation(found, fresh) {
  const parts = [h("p", { class: "cause" }, found.cause)];
  if (!fresh) parts.push(h("p", { class: "note", role: "status" }, "The cluster has changed since; working it out again …"));
  if (found.details.length) parts.push(h("ul", {}, ...found.details.map((/** @type {string} */ detail) => h("li", {}, detail))));
  parts.push(...remedies(found.changes));
  if (found.wakes?.length) parts.push(h("h3", {}, "When the scheduler tries it again"), h("p", { class: "soft" }, "As soon as one of these happens, or else after five minutes:"), h("ul", {}, ...found.wakes.map((/** @type {string} */ text) => h("li", {}, text))));
  if (found.autoscaler.length) parts.push(h("h3", {}, "The autoscaler"), h("ul", {}, ...found.autoscaler.map((/** @type {string} */ text) => h("li", {}, text))));
  for (const request of found.requests) parts.push(...funnel(request).filter(Boolean));
  if (found.nodes.length) parts.push(nodeGroups(found));
  if (found.nearest) parts.push(h("p", {}, "Nearest miss: ", objectLink("Node", found.nearest.node), found.nearest.device ? `, device ${found.nearest.device}` : "", `: ${found.nearest.reasons.join("; ")}`));
  if (found.schedulerSaid) parts.push(h("h3", {}, "The scheduler said"), h("p", { class: "quote" }, found.schedulerSaid));
  parts.push(h("p", {}, copyButton(found.text, "Copy as text")));
  return parts;
}

/** @param {any[]} changes */
function remedies(changes) {
  const tried = changes.filter((change) => change.verified && !change.waits), others = changes.filter((change) => !change.verified);
  const waits = changes.filter((change) => change.waits);
  const item = (/** @type {any} */ change) => h("li", {}, change.text, change.node ? h("span", { class: "soft" }, " → ", change.node === "new-node" ? "a new node" : ["node ", objectLink("Node", change.node)]) : null,
    change.expression ? h("pre", { tabindex: "0" }, change.expression) : null,
    change.command ? h("div", { class: "command" }, h("code", {}, change.command), copyButton(change.command)) : null);
  return [
    ...(tried.length ? [h("h3", {}, "What helps, smallest change first"), h("p", { class: "soft" }, "Each was tried out on this state of the cluster and led to a placement."), h("ol", { class: "remedies" }, ...tried.map(item))] : []),
    ...(waits.length ? [h("h3", {}, "What comes by itself"), h("p", { class: "soft" }, "It was tried out as if it had happened, and led to a placement."), h("ul", { class: "remedies" }, ...waits.map(item))] : []),
    ...(others.length ? [h("h3", {}, "What may help"), h("p", { class: "soft" }, "This cannot be tried out from here."), h("ul", { class: "remedies" }, ...others.map(item))] : []),
  ];
}

/** From all devices to those that are left, filter by filter. @param {any} request */
function funnel(request) {
  const all = request.published || 1;
  const steps = [{ left: request.published, text: `${plural(request.published, "device")} in the cluster` },
    { left: request.devices, text: `${request.devices.toLocaleString("en")} in class ${request.deviceClass}` }];
  let left = request.devices;
  for (const removed of request.removed) {
    left = Math.max(0, left - removed.count);
    const more = removed.nodeCount - removed.nodes.length;
    steps.push({ left, text: `${removed.sentence}${removed.nodes.length ? ` (${removed.nodes.join(", ")}${more > 0 ? ` and ${more} more` : ""})` : ""}` });
  }
  steps.push({ left: request.free, text: `${request.free.toLocaleString("en")} free${request.free ? ` on ${plural(request.freeNodes, "node")}, at most ${request.mostFree} on one` : ""}; ${request.needed ? plural(request.needed, "is", "are") : "all are"} needed together` });
  return [h("h3", {}, request.resource || `Request “${request.request}” of claim ${request.claim}`),
    h("ol", { class: "funnel" }, ...steps.map((step) => h("li", {}, bar(step.left / all), h("span", {}, step.text)))),
    request.together ? h("p", {}, `But not together: ${request.together}`) : null,
    request.holders.length ? h("ul", {}, ...request.holders.map((/** @type {any} */ holder) => h("li", {}, "held by ", objectLink("ResourceClaim", holder.claim), `: ${plural(holder.devices, "device")}`, holder.pods.length ? [" for ", ...holder.pods.slice(0, 5).map((/** @type {string} */ pod) => [objectLink("Pod", pod), " "])] : ", used by no pod"))) : null];
}

/** @param {any} found */
function nodeGroups(found) {
  return h("details", {}, h("summary", {}, `What ${plural(found.nodeCount, "node")} say`),
    h("ul", {}, ...found.nodes.map((/** @type {any} */ group) => h("li", {}, `${group.count} (${group.nodes.slice(0, 3).join(", ")}${group.count > 3 ? " …" : ""}): ${group.reasons.join("; ") || "nothing is wrong"}`))));
}
