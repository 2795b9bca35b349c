// All jobs, what goes on now, the queue, the workers and the pools.
import { get } from "../api.js";
import { drop, spark } from "../charts.js";
import { fill, h, hold, problem } from "../dom.js";
import { ago, duration, number, percent } from "../format.js";
import { follow } from "../live.js";

const POINTS = 60;

export async function jobsPage({ main, signal, until }) {
  const counts = h("div", { class: "cards", "aria-label": "Counts now" });
  const body = h("tbody", {});
  const more = h("button", { class: "quiet", hidden: true }, "More jobs");
  const said = h("div", {});
  const workers = h("div", {});
  const pools = h("div", {});
  fill(main,
    h("h1", {}, "Jobs"), counts, said,
    h("div", { class: "panel scroll" },
      h("table", { class: "jobs" },
        h("thead", {}, h("tr", {}, ["Job", "State", "Steps", "Reward", "Success", "Curve", "Created"]
          .map((name, at) => h("th", { scope: "col", class: [2, 3, 4].includes(at) ? "n" : "" }, name)))), body),
      h("div", { class: "row" }, more)),
    h("div", { class: "grid2" },
      h("section", { class: "panel" }, h("h2", {}, "Workers"), workers),
      h("section", { class: "panel" }, h("h2", {}, "Pools"), pools)));
  until(() => drop(main));
  const rows = new Map();
  let next = "";

  function show(job, onTop) {
    const known = rows.get(job.id);
    if (known) { known.update(job); return; }
    const made = row(job, signal);
    rows.set(job.id, made);
    if (onTop) body.prepend(made.element); else body.append(made.element);
  }
  async function turn() {
    const free = hold(more);
    try {
      const page = await get("/api/jobs", { after: next }, signal);
      for (const job of page.jobs) show(job, false);
      next = page.next;
      more.hidden = !next;
      if (!rows.size) {
        fill(said, h("p", { class: "empty" }, "No job yet. ", h("a", { href: "#/submit" }, "Submit one"), "."));
      } else fill(said);
    } finally { free(); }
  }
  more.addEventListener("click", () => turn().catch((error) => fill(said, problem(error))));
  const running = new Set();
  async function refresh(ids) {
    for (const id of ids) {
      if (!rows.has(id)) continue;
      const job = await get(`/api/jobs/${encodeURIComponent(id)}`, {}, signal).catch(() => null);
      if (job) rows.get(id).update(job);
    }
  }
  let begun = false;
  until(follow(({ status, jobs }) => {
    showCounts(counts, status);
    showWorkers(workers, status);
    showPools(pools, status.pools);
    if (!begun) return;
    fill(said);
    const now = new Set(jobs.map(({ id }) => id));
    refresh([...running].filter((id) => !now.has(id)));
    running.clear();
    for (const id of now) running.add(id);
    for (const job of [...jobs].reverse()) show(job, true);
  }));
  await turn();
  begun = true;
}

function row(job, signal) {
  const cells = Array.from({ length: 7 }, () => h("td", {}));
  const [name, state, steps, reward, success, curve, created] = cells;
  for (const each of [steps, reward, success]) each.className = "n";
  const line = spark(null, `reward of ${job.id}`);
  fill(name, h("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, job.id),
    h("span", { class: "soft" }, [job.environment, job.project].filter(Boolean).join(" · ")));
  fill(curve, line);
  fill(created, ago(job.created));
  let values = null;
  let shown = job.completed_steps;
  const element = h("tr", {}, cells);

  function update(found) {
    fill(state, badge(found), found.ended ? null : h("span", { class: "soft" }, now(found)));
    fill(steps, `${found.completed_steps}${found.steps ? ` / ${found.steps}` : ""}`);
    fill(reward, number(found.metrics.reward_mean, 3));
    fill(success, percent(found.metrics.success_mean));
    if (values && found.completed_steps > shown) {
      values.push(found.metrics.reward_mean ?? null);
      if (values.length > 2 * POINTS) values.shift();
      line.show(values);
    }
    shown = found.completed_steps;
  }
  update(job);
  // Only what is looked at asks for its curve.
  const looked = new IntersectionObserver(async ([entry]) => {
    if (!entry.isIntersecting) return;
    looked.disconnect();
    const found = await get(`/api/jobs/${encodeURIComponent(job.id)}/steps`,
      { names: "reward_mean", points: POINTS }, signal).catch(() => null);
    if (!found) return;
    values = found.metrics.reward_mean ?? [];
    if (element.isConnected) line.show(values);
  });
  looked.observe(element);
  return { element, update };
}

export function badge(job) {
  return h("span", { class: `state ${job.state}` }, job.state);
}

/** What a job does or waits for, in a few words. */
export function now(job) {
  if (job.wait) return job.wait;
  if (job.groups_collected !== null && job.phase === "collect") {
    return `collects ${job.groups_collected} of ${job.groups_per_step} groups`;
  }
  return [job.phase, job.remaining_seconds ? `${duration(job.remaining_seconds)} left` : ""].filter(Boolean).join(" · ");
}

export function card(value, label) {
  return h("div", { class: "card" }, h("b", {}, value), h("span", {}, label));
}

function showCounts(place, status) {
  fill(place,
    card(number(status.jobs.running ?? 0), "jobs running"),
    card(number((status.jobs.queued ?? 0)), "jobs queued"),
    card(number(status.episodes_running), "episodes running"),
    card(number(status.episodes_queued), "episodes queued"),
    card(number(status.results_available), "results for the next step"),
    card(number(status.active_clients), "workers answer"));
}

function showWorkers(place, status) {
  fill(place, status.clients.length ? h("ul", { class: "plain clients" }, status.clients.map((each) =>
    h("li", {}, h("span", { class: `dot ${each.answers ? "good" : "bad"}` }), h("code", {}, each.address),
      h("span", { class: "soft" }, each.answers ? "answers" : each.problem))))
    : h("p", { class: "soft" }, "No replica of the rollout service is there."));
}

export function showPools(place, pools) {
  fill(place, h("ul", { class: "plain" }, pools.map((pool) => h("li", {},
    h("span", { class: `dot ${pool.problem ? "bad" : "good"}` }), h("b", {}, pool.name), " ",
    pool.problem ? h("span", { class: "soft" }, pool.problem)
      : h("span", { class: "soft" }, `${pool.engine.base_model} · ${pool.engine.weight_mode} · ${pool.engine.dtype}`),
    pool.policies.length ? h("ul", { class: "tags" }, pool.policies.map((each) =>
      h("li", {}, each.job ? `${each.job}@${each.version}` : "base model",
        each.running_requests ? ` · ${each.running_requests} running` : ""))) : null))));
}
