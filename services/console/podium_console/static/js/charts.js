// Curves by uPlot, in the page's colours, as wide as their place.
import { h } from "./dom.js";
import { number } from "./format.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const charts = new Set();
const colours = new Map();
dark.addEventListener("change", () => { colours.clear(); for (const chart of charts) chart.redraw(); });

// So many points on a curve, and its noise hides where it goes: their mean is drawn over it.
const MANY = 150;

/** Of how many steps a thick line is the mean, where there are so many; 0 where it is none. */
export function meanOf(points) { return points > MANY ? Math.max(5, Math.round(points / 50)) : 0; }

function css(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colours.get(name);
}
const colour = (style) => () => css(`--c${style}`);

const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const chart = target.chart;
    const width = Math.floor(contentRect.width);
    if (chart && width > 0 && width !== chart.width) chart.setSize({ width, height: chart.height });
  }
});

// What is to be drawn, by its place. Ten charts at once would hold up whoever scrolls or types.
const waiting = new Map();
const FRAME_MS = 8;
let frame = null;

/** Draws in one of the next frames, as much as a frame has time for and at least one chart. */
function soon(place, work) {
  waiting.set(place, work);
  frame ??= requestAnimationFrame(some);
}

function some(began) {
  for (const [place, work] of waiting) {
    waiting.delete(place);
    if (place.isConnected) work();
    if (performance.now() - began > FRAME_MS) break;
  }
  frame = waiting.size ? requestAnimationFrame(some) : null;
}

function axes(unit) {
  const look = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 },
    ticks: { show: false }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif" };
  return [
    { ...look, size: 26, space: 60, values: (_, splits) => splits.map((v) => (Number.isInteger(v) ? v : "")) },
    { ...look, size: 52, space: 34, values: (_, splits) => splits.map((v) => number(v, 3) + (unit ?? "")) },
  ];
}

/** A legend's squares, filled; `style` is of a line, counted from 0. */
function markers(style) {
  const paint = (_, series) => colour(style(series - 1))();
  return { width: 0, stroke: paint, fill: paint };
}

function draw(place, options, data) {
  // Where no cursor is, the legend tells the last values.
  const rest = (u) => { if (u.cursor.idx === null || u.cursor.idx === undefined) u.setLegend({ idx: u.data[0].length - 1 }, false); };
  options.hooks = { setCursor: [rest], setData: [rest], ready: [rest] };
  const chart = new uPlot({ width: Math.max(200, place.clientWidth || 320), ...options }, data, place);
  place.chart = chart;
  sizes.observe(place);
  charts.add(chart);
  return chart;
}

/** Ends every chart under an element that goes. */
export function drop(element) {
  for (const place of element.querySelectorAll(".chart")) {
    waiting.delete(place);
    if (!place.chart) continue;
    sizes.unobserve(place);
    charts.delete(place.chart);
    place.chart.destroy();
    place.chart = null;
  }
}

/** A range that shows a flat curve in the middle, and no more than the values. */
function range(_, low, high) {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 0.5;
  // What is never negative is not shown as if it could be.
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

/**
 * A panel with lines over the steps.
 * lines: [{label, style, dash, dots}], where `dots` are pixels of points that no line joins;
 * `set(x, columns)` shows values.
 */
export function lineChart(title, unit, lines, { height = 190, shared = undefined } = {}) {
  const place = h("div", { class: "chart", role: "img", "aria-label": title });
  const panel = h("section", { class: "panel" },
    h("h3", {}, title, " ", h("span", { class: "soft" }, unit)), place);
  let chart = null;
  let window = 0;
  function set(x, columns) {
    describe(place, title, lines, columns);
    window = meanOf(x.length);
    const none = Array(x.length).fill(null);
    const data = [x, ...columns, ...lines.map(({ dots }, at) => (window && !dots ? means(columns[at], window) : none))];
    soon(place, () => show(data));
  }
  function show(data) {
    if (chart) { chart.setData(data); return; }
    chart = draw(place, {
      height,
      cursor: { points: { size: 7 }, drag: { x: true, y: false }, sync: shared ? { key: shared } : undefined },
      legend: { live: true, isolate: true, markers: markers((at) => lines[at % lines.length].style) },
      scales: { x: { time: false }, y: { range } },
      axes: axes(),
      series: [
        { label: "step" },
        ...lines.map(({ label, style, dots, dash }) => ({
          label, stroke: () => css(`--c${style}`) + (window && !dots ? "4d" : ""), width: dots ? 0 : 2, dash, spanGaps: true,
          paths: dots ? () => null : undefined,
          points: { show: dots ? true : undefined, size: dots ?? 5, fill: colour(style), stroke: colour(style) },
          // Of what is measured now and then, the last that is known.
          value: (u, value, at, i) => number(value ?? (dots ? u.data[at].slice(0, (i ?? -1) + 1).findLast((v) => v !== null) : null)),
        })),
        ...lines.map(({ style, dash }) => ({
          label: "mean", class: "mean", stroke: colour(style), width: 2, dash, spanGaps: true, points: { show: false },
        })),
      ],
    }, data);
  }
  return { panel, set };
}

/** At each point the mean of the last ones. */
function means(column, window) {
  const known = [];
  let sum = 0;
  return column.map((value) => {
    if (value === null || value === undefined) return null;
    known.push(value);
    sum += value;
    if (known.length > window) sum -= known[known.length - window - 1];
    return sum / Math.min(known.length, window);
  });
}

/** A panel with the parts of a whole, one over the other. */
export function stackedChart(title, unit, { height = 190, shared = undefined } = {}) {
  const place = h("div", { class: "chart", role: "img", "aria-label": title });
  const panel = h("section", { class: "panel" },
    h("h3", {}, title, " ", h("span", { class: "soft" }, unit)), place);
  let chart = null;
  let parts = "";
  let raw = [];
  function set(x, names, columns) {
    raw = columns;
    describe(place, title, names.map((label) => ({ label })), columns);
    const sums = [];
    columns.forEach((column, at) => {
      sums.push(column.map((value, i) => (value ?? 0) + (at ? sums[at - 1][i] : 0)));
    });
    soon(place, () => show([x, ...sums], names));
  }
  function show(data, names) {
    if (chart && parts === names.join()) { chart.setData(data); return; }
    if (chart) drop(panel);
    parts = names.join();
    chart = draw(place, {
      height,
      cursor: { points: { show: false }, drag: { x: true, y: false }, sync: shared ? { key: shared } : undefined },
      legend: { live: true, isolate: false, markers: markers((at) => at + 1) },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
      axes: axes(" s"),
      series: [
        { label: "step" },
        ...names.map((label, at) => ({
          label, stroke: colour(at + 1), width: 1, points: { show: false },
          fill: at ? undefined : () => `${css(`--c${at + 1}`)}aa`,
          value: (_, value, series, i) => (i === null || i === undefined ? "–" : `${number(raw[series - 1][i], 3)} s`),
        })),
      ],
      bands: names.slice(1).map((_, at) => ({ series: [at + 2, at + 1], fill: () => `${css(`--c${at + 2}`)}aa` })),
    }, data);
  }
  return { panel, set };
}

/** A curve without words, for a row. */
export function spark(values, label) {
  const place = h("div", { class: "chart spark", role: "img", "aria-label": label });
  place.show = (numbers) => {
    const known = numbers.filter((value) => value !== null);
    if (known.length < 2) return;
    place.setAttribute("aria-label", `${label}, now ${number(known.at(-1))}`);
    const data = [numbers.map((_, at) => at), numbers];
    if (place.chart) { place.chart.setData(data); return; }
    draw(place, {
      width: 120, height: 34, padding: [4, 2, 4, 2], cursor: { show: false }, legend: { show: false },
      scales: { x: { time: false }, y: { range } },
      axes: [{ show: false }, { show: false }],
      series: [{}, { stroke: colour(1), width: 2, spanGaps: true, points: { show: false } }],
    }, data);
    sizes.unobserve(place);
  };
  if (values) queueMicrotask(() => place.show(values));
  return place;
}

function describe(place, title, lines, columns) {
  const words = lines.map(({ label }, at) => {
    const known = columns[at].filter((value) => value !== null && value !== undefined);
    return known.length ? `${label} from ${number(known[0])} to ${number(known.at(-1))}` : "";
  });
  place.setAttribute("aria-label", `${title}: ${words.filter(Boolean).join("; ") || "no values yet"}`);
}
