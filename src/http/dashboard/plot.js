// A line plot over the last minutes, drawn as SVG.
import { h } from "./page.js";

const HEIGHT = 170;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;
export const SPAN_S = 300;
const SPAN_MIN_S = 60;

// The next of 1, 2, 5, 10, ... that is no less.
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= value * 0.999);
}

// Gaps where nothing is known.
function path(points, x, y) {
  let drawn = "", pen = false;
  for (const [t, value] of points) {
    if (value === null) {
      pen = false;
      continue;
    }
    drawn += `${pen ? "L" : "M"}${x(t).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  }
  return drawn;
}

function last(points) {
  for (let i = points.length - 1; i >= 0; i--) if (points[i][1] !== null) return points[i][1];
  return null;
}

// `series`: [{ name, points: [[seconds, value or null], ...] }, ...]; the newest point is now.
export function plot(title, note, series, format, width) {
  const now = Math.max(...series.flatMap((s) => s.points.map(([t]) => t)), 0);
  const top = nice(Math.max(...series.flatMap((s) => s.points.map(([, v]) => v ?? 0)), 0));
  const first = Math.min(...series.flatMap((s) => s.points.map(([t]) => t)), now);
  const span = Math.min(SPAN_S, Math.max(SPAN_MIN_S, 60 * Math.ceil((now - first) / 60)));
  const x = (t) => LEFT + (width - LEFT - 4) * (1 - (now - t) / span);
  const y = (v) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - v / top);
  const grid = [0, 0.5, 1].flatMap((part) => [
    h("line", { class: "grid", x1: LEFT, x2: width - 4, y1: y(part * top), y2: y(part * top) }),
    h("text", { x: LEFT - 7, y: y(part * top) + 4, "text-anchor": "end" }, format(part * top)),
  ]);
  const times = [[span, `${span / 60} min ago`, "start"], [0, "now", "end"]].map(([ago, text, anchor]) =>
    h("text", { x: x(now - ago), y: HEIGHT - 4, "text-anchor": anchor }, text));
  const lines = series.map((s, i) => h("path", { class: `line line${i}`, d: path(s.points, x, y) }));
  const told = series.map((s) => `${s.name} ${last(s.points) === null ? "unknown" : format(last(s.points))}`);
  return h("section", { class: "plot" },
    h("h2", {}, title, h("small", {}, note)),
    h("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${told.join(", ")}` }, grid, times, lines),
    h("div", { class: "legend" }, told.map((text, i) => h("span", {}, h("i", { class: `key${i}` }), text))));
}
