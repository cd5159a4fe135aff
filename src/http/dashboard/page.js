// What every view needs: elements, calls, and how numbers are written. Texts from the cluster only ever become text
// nodes: a name may be any text.

export function h(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

class CallError extends Error {}

async function answer(response) {
  const document = await response.json();
  if (!response.ok) throw new CallError(document.error.message);
  return document;
}

export async function ask(path, query = {}) {
  const text = new URLSearchParams(query).toString();
  return answer(await fetch(`/v1/${path}${text ? "?" + text : ""}`, { signal: AbortSignal.timeout(8000) }));
}

export async function tell(path, body) {
  return answer(await fetch(`/v1/${path}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    signal: AbortSignal.timeout(8000),
  }));
}

export function count(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(n >= 1e7 ? 0 : 1) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(n >= 1e5 ? 0 : 1) + " k";
  return n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en") : n.toFixed(n >= 10 ? 1 : 2);
}

export function duration(ms) {
  if (ms === 0) return "0 s";
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? +ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? +s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// A table whose rows, when they are long, become cards on a phone. A column: [title, cell of a row, "number"?].
export function table(columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("table", { class: columns.length > 3 ? "cards" : undefined },
    h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { class: kind }, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([title, cell, kind]) =>
      h("td", { class: kind, "data-label": title }, cell(row)))))));
}

export function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

// Replaces what stands in the element, unless it would be the same: a reader's selection stays, and so does the focus.
export function show(element, ...children) {
  const holder = h("div", {}, ...children), reach = () => [...element.querySelectorAll("a, button, input")];
  const at = reach().indexOf(document.activeElement);
  if (element.innerHTML === holder.innerHTML) return;
  element.replaceChildren(...holder.childNodes);
  if (at >= 0 && reach()[at]) reach()[at].focus({ preventScroll: true });
}
