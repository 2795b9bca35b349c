// What jobs and projects have used: tokens, GPU hours, cost; and what is left of projects' budgets.
import { get } from "../api.js";
import { fill, h, problem, scrolled } from "../dom.js";
import { hours, money, number } from "../format.js";

const TIMES = [["", "all time"], ["1", "24 hours"], ["7", "7 days"], ["30", "30 days"]];

export async function usagePage({ main, signal, query }) {
  const choice = (id, values, chosen) => h("select", { id, onchange: () => begin() },
    values.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  const by = choice("by", [["job", "by job"], ["project", "by project"]], query.get("by") ?? "job");
  const days = choice("days", TIMES, query.get("days") ?? "");
  const head = h("tr", {});
  const body = h("tbody", {});
  const said = h("div", {});
  const budgets = h("div", {});
  const more = h("button", { class: "quiet", hidden: true, onclick: () => turn() }, "More");
  let next = "";
  let asked = 0;
  fill(main, h("h1", {}, "Usage"),
    h("div", { class: "row" }, h("label", { for: "by" }, "Listed"), by, h("label", { for: "days" }, "of the last"), days),
    said, budgets,
    scrolled("Used", {},
      h("table", { class: "usage" }, h("thead", {}, head), body), more));

  async function begin() {
    history.replaceState(null, "", `#/usage?${new URLSearchParams({ by: by.value, days: days.value })}`);
    next = "";
    fill(body);
    const columns = [by.value === "job" ? ["Job", "Project"] : ["Project"],
      ["Prompt tokens", "Sampled", "Trained", "Trainer", "GPU hours, trainer", "GPU hours, pool", "GPU cost", "Judges' cost"]].flat();
    const names = by.value === "job" ? 2 : 1;
    fill(head, columns.map((title, at) => h("th", { scope: "col", class: at < names ? "" : "n" }, title)));
    await turn();
  }
  async function turn() {
    const mine = asked += 1;
    try {
      const page = await get("/api/usage", { by: by.value, days: days.value, after: next }, signal);
      // Somebody has chosen otherwise in between.
      if (mine !== asked) return;
      if (!next) fill(budgets, page.budgets.map(budget));
      body.append(...page.rows.map(row));
      next = page.next;
      more.hidden = !next;
      fill(said, body.children.length ? null : h("p", { class: "empty" }, "Nothing was used in this time."));
    } catch (error) { if (!signal.aborted) fill(said, problem(error, () => turn())); }
  }
  function row(each) {
    const name = each.job
      ? [h("td", {}, h("a", { href: `#/jobs/${encodeURIComponent(each.job)}` }, each.job)), h("td", {}, each.project)]
      : [h("td", {}, each.project)];
    return h("tr", {}, name, [number(each.prompt_tokens), number(each.sampled_tokens), number(each.trained_tokens),
      hours(each.trainer_seconds), hours(each.trainer_gpu_seconds), hours(each.pool_gpu_seconds),
      money(each.gpu_cost), money(each.judge_cost || null)].map((text) => h("td", { class: "n" }, text)));
  }
  await begin();
}

function budget(each) {
  const spans = [[`Budget of ${each.project}, this month (UTC)`, "", "used up: its jobs pause"],
    [`Budget of ${each.project}, in all`, "total_", "used up: its jobs pause, and no new month helps"]];
  return spans.map(([title, span, done]) => {
    const bounds = [["gpu_hours", "GPU hours"], ["judge_cost", "for judges"]]
      .map(([name, what]) => [each[`max_${span}${name}`], each[`${span}${name}`], what])
      .filter(([most]) => most !== null);
    return bounds.length ? h("div", { class: "panel" }, h("h2", {}, title),
      bounds.map(([most, used, what]) => h("p", {},
        h("meter", { min: 0, max: most || 1, value: Math.min(used, most || 1), "aria-label": `${what} used` }),
        ` ${number(used, 3)} of ${number(most)} ${what}`,
        used >= most ? h("b", {}, ` – ${done}`) : null))) : null;
  });
}
