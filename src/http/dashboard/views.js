// The pages, from what was asked. They draw and ask for nothing themselves, but through `act`.
import { count, duration, h, section, table } from "./page.js";
import { plot } from "./plot.js";

const name = (text, act) => h("button", { class: "link name", type: "button", click: () => act.open(text) }, text);

// --- Overview ---

function tile(title, value) {
  return h("div", { class: "tile" }, h("span", {}, title), h("b", {}, value));
}

// The time that `part` of the calls between two samples did not exceed, in ms; null when there were none.
function quantile(then, now, part, bounds) {
  if (!now) return null;
  const counts = now.counts.map((n, i) => n - (then ? then.counts[i] : 0));
  const total = counts.reduce((a, b) => a + b, 0);
  let seen = 0;
  if (total <= 0) return null;
  for (let i = 0; i < bounds.length; i++) {
    seen += counts[i];
    if (seen >= part * total) return bounds[i] / 1000;
  }
  return bounds[bounds.length - 1] / 1000;
}

const rate = (then, now, value) => {
  const before = value(then), after = value(now), s = (now.now_ms - then.now_ms) / 1000;
  return s > 0 && before !== null && after !== null && after >= before ? (after - before) / s : null;
};

// One point for each sample, from it and the one some samples before: `back` of them.
function points(history, back, value) {
  return history.map((now, i) => [now.now_ms / 1000, i >= back ? value(history[i - back], now) : null]);
}

function plots(history, width) {
  const grants = (m) => (m.node ? m.node.grants : null);
  const calls = (m) => m.gateway.operations.reduce((sum, o) => sum + o.count, 0);
  const times = (pick, part) => (then, now) => quantile(pick(then), pick(now), part, now.bounds_us);
  const acquire = (m) => m.gateway.times.Acquire;
  const write = (m) => m.node && m.node.write, commit = (m) => m.node && m.node.commit;
  return [
    plot("Grants and calls", "a second", [
      { name: "grants, whole cluster", points: points(history, 1, (a, b) => rate(a, b, grants)) },
      { name: "calls, through this node", points: points(history, 1, (a, b) => rate(a, b, calls)) }], count, width),
    plot("Acquires through this node", "time until answered, waits included", [
      { name: "half within", points: points(history, 3, times(acquire, 0.5)) },
      { name: "99 % within", points: points(history, 3, times(acquire, 0.99)) }], duration, width),
    plot("In queues", "requests that wait, whole cluster", [
      { name: "waiting", points: points(history, 0, (_, b) => (b.node ? b.node.waits : null)) }], count, width),
    plot("Making it durable", "99 % within", [
      { name: "this node's disk", points: points(history, 3, times(write, 0.99)) },
      { name: "commit, when it leads", points: points(history, 3, times(commit, 0.99)) }], duration, width),
  ];
}

function role(node) {
  if (node.error) return h("span", { class: "tag bad" }, "cannot be reached");
  return h("span", { class: node.role === "leader" ? "tag good" : "tag" }, node.role);
}

function nodes(status) {
  const applied = Math.max(...status.nodes.map((n) => n.applied_index), 0);
  return section("Nodes", table([
    ["Node", (n) => `${n.node_id}`], ["Role", role],
    ["Term", (n) => (n.error ? "–" : `${n.term}`), "number"],
    ["Behind", (n) => (n.error ? "–" : count(applied - n.applied_index)), "number"],
    ["Sessions", (n) => (n.error ? "–" : count(n.sessions)), "number"],
    ["Memory", (n) => (n.error ? "–" : `${(n.memory_bytes / 1048576).toFixed(1)} MB`), "number"],
    ["Version", (n) => n.version || "–"]], status.nodes, "No node is known here."));
}

function top(title, note, list, columns, empty) {
  return h("section", {}, h("h2", {}, title, h("small", {}, note)), table(columns, list.filter((n) => n.per_s >= 0.05 || n.waiters > 0).slice(0, 10), empty));
}

export function overview(state, act, width) {
  const { monitor, history, status } = state, node = monitor.node;
  const now = history.length > 1 ? rate(history.at(-2), history.at(-1), (m) => (m.node ? m.node.grants : null)) : null;
  const parts = [];
  if (node) {
    parts.push(h("div", { class: "tiles" }, tile("Grants a second", now === null ? "…" : count(now)), tile("Held", count(node.holds)),
      tile("Waiting", count(node.waits)), tile("Names in use", count(node.names)), tile("Sessions", count(node.sessions))));
  }
  parts.push(h("div", { class: "two" }, plots(history, width)));
  if (node) {
    parts.push(h("div", { class: "two" },
      top("Busiest names", "acquires a second, last half minute", node.busiest, [
        ["Name", (n) => name(n.name, act)], ["Acquires", (n) => count(n.per_s), "number"]], "No name stands out."),
      top("Most contended names", "found taken, a second", node.contended, [
        ["Name", (n) => name(n.name, act)], ["Taken", (n) => count(n.per_s), "number"],
        ["Waiters", (n) => count(n.waiters), "number"]], "No name was found taken lately.")));
  }
  if (status) parts.push(nodes(status));
  return parts;
}

// --- Names ---

// The next folders under the prefix, as the names of the page have them.
function folders(prefix, items) {
  const found = new Set();
  for (const item of items) {
    const end = item.name.indexOf("/", prefix.length);
    if (end >= 0) found.add(item.name.slice(0, end + 1));
  }
  return [...found].filter((f) => f !== prefix).slice(0, 30);
}

export function names(list, prefix, act) {
  const below = folders(prefix, list.items);
  return [
    below.length > 0 ? h("div", { class: "folders" }, below.map((folder) =>
      h("button", { class: "tag name", type: "button", click: () => act.prefix(folder) }, folder))) : null,
    table([
      ["Name", (i) => name(i.name, act)], ["Held by", (i) => (i.holders > 1 ? `${i.client} and ${i.holders - 1} more` : i.client || "–")],
      ["For", (i) => (i.holders ? duration(i.held_for_ms) : "–"), "number"], ["Mode", (i) => mode(i.mode, i.limit)],
      ["Waiting", (i) => count(i.waiters), "number"]], list.items, prefix ? "Nothing with that prefix is held or waited for." : "Nothing is held."),
    list.next_page_token ? h("p", {}, h("button", { type: "button", click: () => act.page(list.next_page_token) }, "Next names")) : null,
  ];
}

const mode = (m, limit) => (m === "COUNTED" ? `counted, ${limit} permits` : (m || "–").toLowerCase());

export function described(d, act) {
  return section(h("span", {}, h("span", { class: "name" }, d.name), h("small", {}, mode(d.mode, d.limit))),
    d.closed_for_ms > 0 ? h("p", { class: "soft" }, `Closed for another ${duration(d.closed_for_ms)}: its last holder's session expired with a lock-delay.`) : null,
    table([
      ["Held by", (o) => o.client || "(no name)"], ["Token", (o) => `${o.token}`, "number"], ["For", (o) => duration(o.held_for_ms), "number"],
      ["Lease left", (o) => duration(o.lease_left_ms), "number"],
      ["", (o) => h("button", { class: "danger", type: "button", click: () => act.force(d.name, o) }, "Force release"), "number"]],
    d.holders, "Nobody holds it."),
    d.waiter_count > 0 ? h("h2", {}, `${count(d.waiter_count)} waiting`, h("small", {}, d.waiters.length < d.waiter_count ? `the first ${d.waiters.length}` : "")) : null,
    d.waiter_count > 0 ? table([
      ["Client", (w) => w.client || "(no name)"], ["For", (w) => duration(w.waiting_for_ms), "number"], ["Mode", (w) => mode(w.mode, 0)]], d.waiters, "") : null);
}

// --- Waits ---

export function cycleText(cycle) {
  return cycle.steps.map((step) => `${step.client || step.session_id.slice(0, 8)} waits for ${step.waits_for}`).join(", held by ") +
    `, held by ${cycle.steps[0].client || cycle.steps[0].session_id.slice(0, 8)}`;
}

export function waits(list, act) {
  const oldest = (n) => Math.max(...n.waiters.map((w) => w.for_ms), 0);
  const sorted = [...list.names].sort((a, b) => oldest(b) - oldest(a));
  const who = (requests) => requests.slice(0, 5).map((r) => r.client || r.session_id.slice(0, 8)).join(", ") +
    (requests.length > 5 ? ` and ${requests.length - 5} more` : "");
  return [
    list.cycles.length > 0 ? section("In a circle", h("p", { class: "soft" },
      "None of these goes on unless one gives up, releases in another thread, or is ended; each wait ends by its own deadline."),
    h("ul", {}, list.cycles.map((c) => h("li", {}, cycleText(c))))) : null,
    section("Who waits for whom", table([
      ["Name", (n) => name(n.name, act)], ["Held by", (n) => who(n.holders) || "nobody yet"],
      ["Waiting", (n) => who(n.waiters)], ["Longest", (n) => duration(oldest(n)), "number"]], sorted, "Nobody waits."),
    list.more ? h("p", { class: "soft" }, "There are more waits than are shown.") : null),
  ];
}

// --- Sessions ---

export function sessions(list, act) {
  return [
    table([
      ["Client", (s) => s.client || "(no name)"], ["Session", (s) => h("span", { class: "name" }, s.session_id.slice(0, 10) + "…")],
      ["Holds", (s) => count(s.holds), "number"], ["Waits", (s) => count(s.waits), "number"],
      ["Silent for", (s) => `${duration(s.silent_ms)} of ${duration(s.ttl_ms)}`, "number"], ["Age", (s) => duration(s.age_ms), "number"],
      ["", (s) => h("button", { class: "danger", type: "button", click: () => act.end(s) }, "End"), "number"]],
    list.sessions, "No session is open."),
    list.next_page_token ? h("p", {}, h("button", { type: "button", click: () => act.page(list.next_page_token) }, "Next sessions")) : null,
  ];
}
