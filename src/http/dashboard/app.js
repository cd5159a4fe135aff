// Asks every two seconds, draws the page that the address names, and does what the operator confirms.
import { ask, h, section, show, tell } from "./page.js";
import { SPAN_S } from "./plot.js";
import * as views from "./views.js";

const EVERY_MS = 2000;
const state = { monitor: null, history: [], status: null, waits: null, failure: null, turn: 0 };
const main = document.getElementById("main");
const dialog = document.getElementById("dialog");

// #names?prefix=a/&name=a/b
function place() {
  const [page, query] = location.hash.slice(1).split("?");
  return { page: ["names", "waits", "sessions"].includes(page) ? page : "overview", query: new URLSearchParams(query || "") };
}

function go(page, query = {}) {
  const text = new URLSearchParams(query).toString();
  location.hash = page + (text ? "?" + text : "");
}

const act = {
  open: (name) => go("names", { prefix: place().query.get("prefix") || "", name }),
  prefix: (prefix) => go("names", { prefix }),
  page: (page) => go(place().page, { ...Object.fromEntries(place().query), page }),
  force: (name, holder) => confirm("Take the name from its holder", [
    h("p", {}, h("span", { class: "name" }, name), ` is held by ${holder.client || "(no name)"} with token ${holder.token}. `,
      "The next in the queue gets it at once. The holder is told who and why; what it protects must be fenced by its token."),
  ], "Force release", (by, reason) => tell("AdminService/ForceRelease", { name, token: holder.token, by, reason })),
  end: (session) => confirm("End the session", [
    h("p", {}, `${session.client || "(no name)"} loses ${session.holds} held and ${session.waits} awaited names at once.`),
  ], "End session", (by, reason) => tell("AdminService/EndSession", { session_id: session.session_id, by, reason })),
};

// --- What an operator does ---

function confirm(title, explanation, verb, run) {
  const by = h("input", { id: "by", maxlength: 128, value: localStorage.getItem("by") || "", autocomplete: "off" });
  const reason = h("input", { id: "reason", maxlength: 256, autocomplete: "off" });
  const said = h("p", { class: "soft", role: "alert" });
  const close = () => dialog.close();
  const submit = async (event) => {
    event.preventDefault();
    if (!by.value.trim() || !reason.value.trim()) {
      said.textContent = "Say who you are, and why: it is told to the holder.";
      return;
    }
    try {
      await run(by.value.trim(), reason.value.trim());
      localStorage.setItem("by", by.value.trim());
      close();
      await turn();
    } catch (error) {
      said.textContent = `Not done: ${error.message}`;
    }
  };
  dialog.replaceChildren(h("form", { submit, novalidate: true },
    h("h2", { id: "dialog-title" }, title), ...explanation,
    h("label", { for: "by" }, "Who you are"), by, h("label", { for: "reason" }, "Reason"), reason, said,
    h("div", { class: "row" }, h("button", { type: "button", click: close }, "Cancel"), h("button", { class: "main" }, verb))));
  dialog.showModal();
  (by.value ? reason : by).focus();
}

// --- Asking ---

async function update() {
  const monitor = await ask("Monitor");
  const before = state.history.at(-1);
  state.monitor = monitor;
  if (before && monitor.node && before.node && monitor.node.grants < before.node.grants) state.history = []; // another cluster
  // Of two that are close together the difference would be noise: figures are made five times a second.
  if (!state.history.length || monitor.now_ms - state.history.at(-1).now_ms >= EVERY_MS * 0.75) state.history.push(monitor);
  state.history = state.history.filter((m) => monitor.now_ms - m.now_ms <= SPAN_S * 1000);
  if (state.turn++ % 2 === 0 || place().page === "waits") state.waits = await ask("AdminService/ListWaits", { max: 1000 }).catch(() => null);
}

// What the page shows beside; it draws into main, or the part of it that stands.
const pages = {
  async overview() {
    state.status = await ask("AdminService/Status", { all_nodes: true });
    const width = Math.max(280, Math.min(main.clientWidth - 40, main.clientWidth >= 900 ? main.clientWidth / 2 - 60 : Infinity));
    return () => show(main, ...views.overview(state, act, Math.round(width)));
  },
  async names(query) {
    const prefix = query.get("prefix") || "", name = query.get("name");
    const list = await ask("LockService/List", { prefix, page_size: 100, page_token: query.get("page") || "" });
    const told = name ? await ask("LockService/Describe", { name, waiters_max: 50 }) : null;
    return () => {
      frame("names", () => [
        h("div", { id: "described" }),
        section("Names", h("form", { class: "row", submit: (event) => { event.preventDefault(); act.prefix(event.target.prefix.value); } },
          h("input", { name: "prefix", "aria-label": "Prefix", placeholder: "Prefix, e.g. invoice/", value: prefix, autocomplete: "off", spellcheck: "false" }),
          h("button", { class: "main" }, "Show")), h("div", { id: "list" }))]);
      const input = main.querySelector("input");
      if (document.activeElement !== input) input.value = prefix;
      show(document.getElementById("described"), ...(told ? [views.described(told, act)] : []));
      show(document.getElementById("list"), ...views.names(list, prefix, act));
    };
  },
  async waits() {
    return () => show(main, ...(state.waits ? views.waits(state.waits, act) : []));
  },
  async sessions(query) {
    const list = await ask("AdminService/ListSessions", { page_size: 100, page_token: query.get("page") || "" });
    return () => {
      frame("sessions", () => [section("Sessions", h("div", { id: "list" }))]);
      show(document.getElementById("list"), ...views.sessions(list, act));
    };
  },
};

// The page's standing part, made once.
function frame(page, make) {
  if (main.dataset.frame === page) return;
  main.dataset.frame = page;
  main.replaceChildren(...make());
}

// --- Drawing ---

function drawHead() {
  const leader = document.getElementById("leader"), gateway = state.monitor && state.monitor.gateway;
  const is_good = !state.failure && gateway && gateway.has_leader;
  leader.className = is_good ? "good" : "bad";
  leader.textContent = is_good ? `node ${gateway.leader_id} leads` : state.failure ? "no answer" : "no leader";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === "#" + place().page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function drawNotices() {
  const notices = [];
  if (state.failure) notices.push(h("p", { class: "notice bad" }, state.failure));
  else if (state.monitor && !state.monitor.gateway.has_leader)
    notices.push(h("p", { class: "notice bad" }, "No leader can be reached from here: nothing is granted. Are most nodes up?"));
  if (state.monitor && state.monitor.node && state.monitor.node.is_disk_full)
    notices.push(h("p", { class: "notice bad" }, "This node's disk is full: free some space, and it goes on by itself."));
  for (const cycle of (state.waits && state.waits.cycles) || [])
    notices.push(h("p", { class: "notice" }, `Waiting in a circle: ${views.cycleText(cycle)}.`));
  show(document.getElementById("notices"), ...notices);
}

// A button that is replaced between press and release would not be clicked.
let isPressed = false;
for (const [type, value] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]])
  window.addEventListener(type, () => { isPressed = value; }, true);

let latest = 0;

async function turn() {
  const number = ++latest, { page, query } = place();
  try {
    await update();
    const draw = await pages[page](query);
    if (number !== latest || isPressed) return; // the reader has gone on meanwhile, or is about to
    state.failure = null;
    if (main.dataset.page !== location.hash) {
      main.dataset.page = location.hash;
      if (main.dataset.frame !== page) main.replaceChildren();
    }
    if (!["names", "sessions"].includes(page)) delete main.dataset.frame;
    draw();
  } catch (error) {
    if (number !== latest) return;
    state.failure = error instanceof TypeError || error.name === "TimeoutError" ? "This node does not answer; what you see is what it last told." : error.message;
  }
  drawHead();
  drawNotices();
}

window.addEventListener("hashchange", turn);
window.addEventListener("resize", () => { if (place().page === "overview") turn(); });
setInterval(() => { if (!document.hidden && !dialog.open) turn(); }, EVERY_MS);
turn();
