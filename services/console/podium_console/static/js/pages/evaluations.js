// What clients measured and stored: a list, one by its scenarios, and two against each other.
import { get } from "../api.js";
import { fill, h, hold, problem, scrolled } from "../dom.js";
import { ago, number, percent, when } from "../format.js";

const SIZE = 25;
const SCENARIOS = 100;
const FILTERS = [["environment", "Environment"], ["job", "Job"], ["name", "Name"], ["project", "Project"]];

export async function evaluationsPage({ main, signal, query }) {
  const inputs = Object.fromEntries(FILTERS.map(([name]) =>
    [name, h("input", { id: name, value: query.get(name) ?? "", spellcheck: "false", placeholder: "all" })]));
  const body = h("tbody", {});
  const said = h("div", { role: "status" });
  const compare = h("button", { disabled: true, onclick: () => { location.hash = against(...chosen); } }, "Compare the two");
  const hint = h("span", { class: "soft" });
  const pages = turning(signal, said, async (after) => {
    const found = await get("/api/evaluations", { ...filters(), after, size: SIZE }, signal);
    return [found.next, found.evaluations.map(row), found.evaluations.length ? null : h("p", { class: "empty" },
      "Nothing is stored here. ", h("code", {}, "podium eval ENVIRONMENT -a base"), " measures an agent and keeps what it did.")];
  }, body);
  // The first is what the second is held against.
  let chosen = [];

  fill(main, h("h1", {}, "Evaluations"),
    h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); begin(); } },
      FILTERS.map(([name, label]) => h("span", { class: "together" }, h("label", { for: name }, label), inputs[name])),
      h("button", {}, "Show")),
    h("div", { class: "row" }, compare, hint), said,
    h("div", { class: "panel scroll" }, h("table", { class: "evaluations" },
      h("thead", {}, h("tr", {}, [["", "Compare"], ["Agent"], ["Environment"], ["Success, 95 %", "n"], ["Reward, 95 %", "n"], ["Scenarios", "n"], ["Stored", "n"]]
        .map(([title, kind]) => h("th", { scope: "col", class: kind === "n" ? "n" : "" }, title || h("span", { class: "hidden" }, kind))))), body)),
    pages.element);

  function filters() { return Object.fromEntries(FILTERS.map(([name]) => [name, inputs[name].value.trim()])); }
  function begin() {
    const kept = Object.entries(filters()).filter(([, value]) => value);
    history.replaceState(null, "", `#/evaluations${kept.length ? `?${new URLSearchParams(kept)}` : ""}`);
    return pages.begin();
  }
  function row(each) {
    const tick = h("input", { type: "checkbox", checked: chosen.includes(each.id), "aria-label": `compare ${each.agent}, ${each.id}`,
      onchange: () => choose(each.id, tick.checked) });
    tick.dataset.id = each.id;
    return h("tr", {}, h("td", {}, tick),
      h("td", {}, h("a", { href: one(each.id) }, each.agent), h("span", { class: "soft" }, [each.name, each.id].filter(Boolean).join(" · ")),
        h("span", { class: "soft phone" }, each.environment)),
      h("td", {}, each.environment, h("span", { class: "soft" }, [each.split, each.project].filter(Boolean).join(" · "))),
      h("td", { class: "n" }, shares(each.success)), h("td", { class: "n" }, numbers(each.reward)),
      h("td", { class: "n" }, number(each.scenarios)), h("td", { class: "n" }, ago(each.created)));
  }
  function choose(id, yes) {
    chosen = yes ? [...chosen, id].slice(-2) : chosen.filter((each) => each !== id);
    for (const tick of body.querySelectorAll("input")) tick.checked = chosen.includes(tick.dataset.id);
    told();
  }
  function told() {
    compare.disabled = chosen.length < 2;
    fill(hint, chosen.length === 2 ? "The one ticked last is held against the other."
      : chosen.length ? "Tick another one." : "Tick two to compare them, also of different pages.");
  }
  told();
  await begin();
}

export async function evaluationPage({ main, signal }, id) {
  const path = `/api/evaluations/${encodeURIComponent(id)}`;
  const found = await get(path, {}, signal);
  const body = h("tbody", {});
  const said = h("div", { role: "status" });
  const judged = found.win_rate !== null;
  const columns = ["Scenario", "Succeeded", "Reward", "Turns", ...(judged ? ["Won"] : []), "Failed"];
  const pages = turning(signal, said, async (after) => {
    const page = await get(`${path}/scenarios`, { after, size: SCENARIOS }, signal);
    return [page.next, page.scenarios.map((each) => h("tr", {}, h("td", { class: "words" }, each.id),
      [each.attempts ? `${each.succeeded} / ${each.attempts}` : "unanswered", number(each.reward, 3), number(each.turns, 3),
        ...(judged ? [percent(each.wins)] : []), each.failed || "–"].map((text) => h("td", { class: "n" }, text))))];
  }, body);
  fill(main,
    h("p", { class: "crumbs" }, h("a", { href: "#/evaluations" }, "Evaluations"), ` / ${found.id}`),
    h("div", { class: "row spread" }, h("h1", {}, found.agent),
      h("a", { class: "button quiet", href: `#/evaluations?${new URLSearchParams({ environment: found.environment })}` }, "Others of this environment")),
    h("div", { class: "cards" }, card(found.success, shares, "success, 95 %"), card(found.reward, numbers, "reward, 95 %"),
      judged ? card(found.win_rate, shares, `wins against ${found.reference}, 95 %`) : null,
      h("div", { class: "card" }, h("b", {}, number(found.scenarios)), h("span", {}, `scenarios, ${number(found.counted)} attempts that count`)),
      found.unanswered ? h("div", { class: "card" }, h("b", {}, number(found.unanswered)), h("span", {}, "attempts never answered")) : null),
    h("details", { class: "panel", open: true }, h("summary", {}, "What its numbers depend on"), details(found)),
    h("h2", {}, "Scenarios"), said,
    scrolled("Scenarios", {}, h("table", { class: "scenarios" },
      h("thead", {}, h("tr", {}, columns.map((title, at) => h("th", { scope: "col", class: at ? "n" : "" }, title)))), body)),
    pages.element);
  await pages.begin();
}

export async function comparisonPage({ main, signal, query }) {
  const result = h("div", {});
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""];
  fill(main, h("p", { class: "crumbs" }, h("a", { href: "#/evaluations" }, "Evaluations"), " / compare"),
    h("div", { class: "row spread" }, h("h1", {}, "Two evaluations"),
      h("a", { class: "button quiet", href: against(b, a) }, "The other way round")), result);
  async function show(common) {
    fill(result, h("p", { class: "soft", role: "status" }, "Loading…"));
    try {
      const found = await get("/api/evaluations/compare", { a, b, common: common ? 1 : "" }, signal);
      fill(result, compared(found));
    } catch (error) {
      if (signal.aborted) return;
      fill(result, problem(error, error.reason === "SCENARIOS_DIFFER" ? null : () => show(common)),
        error.reason === "SCENARIOS_DIFFER" ? h("button", { onclick: () => show(true) }, "Compare the scenarios that both have") : null);
    }
  }
  await show(query.get("common") === "1");
}

function compared({ first, second, notes, scenarios, success, reward, rows }) {
  const name = (each) => h("span", {}, h("a", { href: one(each.id) }, each.agent), h("span", { class: "soft" }, ` ${each.id}`));
  const sides = [["success, 95 %", (each) => shares(each.success)], ["reward, 95 %", (each) => numbers(each.reward)],
    ["scenarios", (each) => number(each.scenarios)], ["attempts of each", (each) => number(each.attempts)],
    ["environment", (each) => `${each.environment}, ${each.split}`], ["stored", (each) => when(each.created)]];
  const cell = (each) => [`${each.succeeded} / ${each.attempts}`, h("span", { class: "soft" }, `reward ${number(each.reward, 3)}`)];
  return [
    notes.map((each) => h("p", { class: "note" }, each)),
    h("div", { class: "cards two" }, difference("success", success, (value) => `${signed(value * 100, 1)} points`),
      difference("reward", reward, (value) => signed(value, 3))),
    h("p", { class: "soft" }, `The second less the first, paired over ${number(scenarios)} scenarios; in brackets the 95 % interval. `
      + "One that holds 0 tells no difference."),
    scrolled("The two evaluations", {}, h("table", {},
      h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "First: ", name(first)), h("th", { scope: "col" }, "Second: ", name(second)))),
      h("tbody", {}, sides.map(([what, value]) => h("tr", {}, h("th", { scope: "row" }, what), [first, second].map((each) => h("td", {}, value(each)))))))),
    rows.length ? scrolled("Where they differ most", {}, h("h2", {}, "Where they differ most"), h("table", { class: "scenarios" },
      h("thead", {}, h("tr", {}, ["Scenario", "First", "Second"].map((title, at) => h("th", { scope: "col", class: at ? "n" : "" }, title)))),
      h("tbody", {}, rows.map((each) => h("tr", {}, h("td", { class: "words" }, each.id),
        [each.first, each.second].map((side) => h("td", { class: "n" }, cell(side)))))))) : null,
  ];
}

function difference(what, found, words) {
  if (!found) return h("div", { class: "card" }, h("b", {}, "–"), h("span", {}, `${what}: both have none`));
  const known = found.low !== null && found.high !== null;
  const sure = known && (found.low > 0 || found.high < 0);
  return h("div", { class: "card" },
    h("b", { class: sure ? (found.mean > 0 ? "fine" : "worse") : "" }, words(found.mean)),
    h("span", {}, `${what} (${known ? `${words(found.low)} to ${words(found.high)}` : "no interval of one scenario"}); `
      + `better in ${number(found.better)}, worse in ${number(found.worse)}`));
}

/** Pages of a list by their tokens; `load` gives, of the page after one, the next one's, rows and a word. */
function turning(signal, said, load, body) {
  const back = h("button", { class: "quiet", onclick: () => { turned.pop(); turn(); } }, "Previous");
  const on = h("button", { class: "quiet", onclick: () => { turned.push(next); turn(); } }, "Next");
  const place = h("span", { class: "soft" });
  let turned = [""];
  let next = "";
  let asked = 0;
  async function turn() {
    const mine = asked += 1;
    const free = hold(on, back);
    fill(said, h("p", { class: "soft" }, "Loading…"));
    try {
      const [following, rows, word] = await load(turned.at(-1));
      // Somebody has chosen otherwise in between.
      if (mine !== asked) return;
      next = following;
      fill(body, rows);
      fill(said, word);
      fill(place, `page ${turned.length}`);
    } catch (error) {
      if (signal.aborted || mine !== asked) return;
      next = "";
      fill(body);
      fill(said, problem(error, turn));
    }
    free((each) => (each === on ? next : turned.length > 1));
  }
  return {
    element: h("nav", { class: "row", "aria-label": "Pages of the list" }, back, on, place),
    begin: () => { turned = [""]; return turn(); },
  };
}

function details(found) {
  const rows = [["name", found.name], ["project", found.project],
    ["policy", found.job ? h("a", { href: `#/models/${encodeURIComponent(found.job)}` }, `${found.job}@${found.version}`) : found.version === null ? "" : "the base model"],
    ["environment", `${found.environment}, split ${found.split}`], ["its options", found.config], ["attempts of a scenario", found.attempts],
    ["seed", found.seed], ["sampling", found.max_tokens === null ? "" : `temperature ${number(found.temperature)}, at most ${number(found.max_tokens)} tokens`],
    ["turns", found.max_turns === null ? "" : `at most ${number(found.max_turns)}`],
    ["success", found.threshold === null ? "as the environment says" : `a reward of the environment's above ${number(found.threshold)}`],
    ["rewards are", found.scorers.map((each) => each.weight === 1 ? each.kind : `${number(each.weight)} × ${each.kind}`).join(" + ")],
    ["Podium", found.podium_version], ["stored", when(found.created)]].filter(([, value]) => value !== "");
  return h("dl", { class: "numbers" }, rows.flatMap(([what, value]) => [h("dt", {}, what), h("dd", {}, value)]));
}

function card(value, words, label) {
  return h("div", { class: "card" }, h("b", {}, words(value)), h("span", {}, label));
}

function shares(each) { return interval(each, percent); }
function numbers(each) { return interval(each, (value) => number(value, 3)); }
function interval(each, words) {
  if (!each) return "–";
  return [words(each.mean), each.low === null ? null : h("span", { class: "soft" }, ` ${words(each.low)} to ${words(each.high)}`)];
}
function signed(value, digits) { return `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)}`; }
function one(id) { return `#/evaluations/${encodeURIComponent(id)}`; }
function against(a, b) { return `#/evaluations/compare?${new URLSearchParams({ a, b })}`; }
