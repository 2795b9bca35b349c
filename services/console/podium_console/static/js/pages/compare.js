// Two runs side by side, over each other in every chart.
import { get } from "../api.js";
import { drop, lineChart } from "../charts.js";
import { CURVES, SUCCESS, labelled, titled } from "../curves.js";
import { fill, h, problem, scrolled } from "../dom.js";
import { duration, number, percent } from "../format.js";
import { stepsOf } from "../steps.js";
import { badge } from "./jobs.js";

const KL = "train/kl_reference";

export async function comparePage({ main, signal, query, until }) {
  const { jobs } = await get("/api/jobs", { size: 50 }, signal);
  const names = jobs.map(({ id }) => id);
  const choices = h("datalist", { id: "jobs" }, names.map((id) => h("option", { value: id })));
  const input = (id, value) => h("input", { id, list: "jobs", value, required: true, spellcheck: "false" });
  const a = input("a", query.get("a") ?? names[0] ?? "");
  const b = input("b", query.get("b") ?? names.find((id) => id !== a.value) ?? "");
  const result = h("div", {});
  fill(main, h("h1", {}, "Compare two runs"), choices,
    h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); show(); } },
      h("span", { class: "together" }, h("label", { for: "a" }, "Run"), a),
      h("span", { class: "together" }, h("label", { for: "b" }, "with"), b, h("button", {}, "Compare"))), result);
  until(() => drop(main));

  async function show() {
    history.replaceState(null, "", `#/compare?${new URLSearchParams({ a: a.value, b: b.value })}`);
    drop(result);
    fill(result, h("p", { class: "soft" }, "Loading…"));
    try {
      const sides = await Promise.all([a.value, b.value].map((id) => side(id, signal)));
      fill(result, summary(sides), differences(sides));
      const grid = h("div", { class: "grid2" });
      result.append(grid);
      draw(grid, sides);
    } catch (error) { if (!signal.aborted) fill(result, problem(error, show)); }
  }
  if (a.value && b.value) await show();
  else fill(result, h("p", { class: "empty" }, "There are not two runs yet."));
}

async function side(id, signal) {
  const path = `/api/jobs/${encodeURIComponent(id)}`;
  const [job, steps, evaluations] = await Promise.all([
    get(path, {}, signal), stepsOf(id, signal), get(`${path}/evaluations`, {}, signal)]);
  return { job, steps, evaluations: evaluations.evaluations };
}

function summary(sides) {
  const last = ({ evaluations }, mode) => evaluations.filter((each) => each.mode === mode).at(-1);
  const rows = [
    ["state", ({ job }) => badge(job)],
    ["steps", ({ job }) => `${job.completed_steps}${job.steps ? ` / ${job.steps}` : ""}`],
    ["reward of the last step", ({ job }) => number(job.metrics.reward_mean, 3)],
    [labelled(SUCCESS), ({ job }) => percent(job.metrics[SUCCESS])],
    ["held-out success, sampled", (each) => percent(last(each, "sampled")?.metrics.success)],
    ["held-out success, greedy", (each) => percent(last(each, "greedy")?.metrics.success)],
    ...sides.some(({ job }) => KL in job.metrics) ? [[labelled(KL), ({ job }) => number(job.metrics[KL], 3)]] : [],
    ["seconds a step, mean", ({ steps }) => duration(mean(steps))],
    ["ran for", ({ job }) => duration(job.started ? Math.max(0, (job.ended_at ?? Date.now() / 1000) - job.started) : null)],
  ];
  return scrolled("The two jobs", {}, h("table", {},
    h("thead", {}, h("tr", {}, h("td", {}), sides.map(({ job }, at) => h("th", { scope: "col" },
      h("span", { class: "named" }, h("span", { class: `dot c${at + 1}` }), h("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, job.id)))))),
    h("tbody", {}, rows.map(([name, of]) => h("tr", {}, h("th", { scope: "row" }, name), sides.map((each) => h("td", {}, of(each))))))));
}

function mean({ metrics, numbers }) {
  const names = Object.keys(metrics).filter((name) => name.startsWith("seconds/"));
  const total = names.reduce((sum, name) => sum + metrics[name].reduce((s, v) => s + (v ?? 0), 0), 0);
  return numbers.length && names.length ? total / numbers.length : null;
}

/** The lines of the two specifications that are not in the other. */
function differences(sides) {
  const lines = sides.map(({ job }) => flat(job.spec));
  const keys = [...new Set(lines.flatMap((each) => [...each.keys()]))]
    .filter((key) => lines[0].get(key) !== lines[1].get(key));
  return h("details", { class: "panel", open: keys.length > 0 && keys.length < 12 },
    h("summary", {}, keys.length ? `Specifications differ in ${keys.length} ${keys.length > 1 ? "keys" : "key"}` : "The specifications are the same"),
    keys.length ? scrolled("Keys that differ", { class: "scroll" }, h("table", {}, h("tbody", {}, keys.map((key) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, key)),
      lines.map((each) => h("td", {}, h("code", {}, each.get(key) ?? "–")))))))) : null);
}

/** A job file's lines by their keys with dots. */
function flat(yaml) {
  const found = new Map();
  const path = [];
  yaml.split("\n").forEach((line, at) => {
    const match = line.match(/^( *)([\w-]+):(?: (.*))?$/);
    if (!match) { if (line.trim()) found.set(`${path.map(([, key]) => key).join(".")}[${at}]`, line.trim()); return; }
    while (path.length && path.at(-1)[0] >= match[1].length) path.pop();
    path.push([match[1].length, match[2]]);
    if (match[3]) found.set(path.map(([, key]) => key).join("."), match[3]);
  });
  return found;
}

function draw(grid, sides) {
  const x = [...new Set(sides.flatMap(({ steps }) => steps.numbers))].sort((p, q) => p - q);
  const places = sides.map(({ steps }) => new Map(steps.numbers.map((step, at) => [step, at])));
  const names = CURVES.filter((name) => sides.some(({ steps }) => name in steps.metrics));
  for (const name of names) {
    const chart = lineChart(...titled(name), sides.map(({ job }, at) => ({ label: job.id, style: at + 1, dash: at ? [6, 4] : undefined })), { shared: "compare" });
    grid.append(chart.panel);
    chart.set(x, sides.map(({ steps }, at) => x.map((step) => {
      const index = places[at].get(step);
      return index === undefined ? null : steps.metrics[name]?.[index] ?? null;
    })));
  }
}
