// One job: what it does, its curves as they grow, its events, and what can be done with it.
import { get, listen, post } from "../api.js";
import { drop, lineChart, meanOf, stackedChart } from "../charts.js";
import { CURVES, REWARD, SUCCESS, labelled, titled } from "../curves.js";
import { confirmed, fill, h, problem, toast } from "../dom.js";
import { duration, hours, money, number, percent, when, words } from "../format.js";
import { follow } from "../live.js";
import { push, stepsOf } from "../steps.js";
import { badge, card, now } from "./jobs.js";

// Two are drawn together, with what evaluations say.
const PANELS = CURVES.filter((name) => name !== REWARD && name !== SUCCESS);
const EVENTS = 100;

export async function jobPage(context, id) {
  const { main, signal, until } = context;
  const path = `/api/jobs/${encodeURIComponent(id)}`;
  const [job, events, steps, evaluations] = await Promise.all([
    get(path, {}, signal), get(`${path}/events`, { size: EVENTS }, signal),
    stepsOf(id, signal), get(`${path}/evaluations`, {}, signal),
  ]);
  until(() => drop(main));
  const head = header(id, path, new Map(Object.entries(events.open)));
  const curves = charts(steps, evaluations.evaluations);
  const told = eventList(path, events, signal);
  fill(main, head.element, curves.element, told.element, used(job.usage),
    h("details", { class: "panel" }, h("summary", {}, "Specification, with every default"),
      h("pre", { tabindex: 0 }, job.spec)));
  head.update(job);
  until(() => curves.end());

  let ended = job.ended;
  if (!ended) {
    until(listen(`${path}/watch`, { after: events.last }, {
      open: () => head.lost(""),
      error: (error) => { if (!ended) head.lost(error.message); },
      end: () => { ended = true; context.until(() => {}); stop(); },
      update: (update) => {
        ended = update.job.ended;
        head.found(update.event);
        head.update({ ...update.job, spec: job.spec });
        told.add(update.event);
        if (update.step) curves.add(update.step);
        if (update.evaluation) curves.evaluated(update.evaluation);
      },
    }));
    // Counts of episodes are no events; they come with the overview.
    until(follow(({ jobs }) => {
      const found = jobs.find((each) => each.id === id);
      if (found && !ended) head.counts(found);
    }));
  }
  function stop() { head.lost(""); }
}

/** `findings` are what the job's coach has found and is not over: its words by reason. */
function header(id, path, findings) {
  const state = h("span", {});
  const doing = h("p", { class: "soft", role: "status" });
  const actions = h("div", { class: "row" });
  const cards = h("div", { class: "cards" });
  const place = h("p", { class: "soft" });
  const notes = h("div", {});
  const lostNote = h("p", { class: "note", hidden: true, role: "status" });
  const meter = h("progress", { max: 1, value: 0, "aria-label": "steps committed" });
  let last = null;
  let offered = null;
  // What was pressed, until it is answered.
  let pressed = null;

  async function act(name, label) {
    if (name === "cancel" && !(await confirmed(`Cancel ${id}? It stops for good; what it has published stays.`, "Cancel the job"))) return;
    pressed = label;
    for (const button of actions.querySelectorAll("button")) button.disabled = true;
    try {
      const answer = await post(`${path}/${name}`);
      offered = null;
      update({ ...last, ...answer });
      toast(`${id}: asked to ${name}`, "good");
    } catch (error) { toast(error.message); offered = null; update(last); }
    pressed = null;
  }
  function button(name, label, kind) {
    return h("button", { class: kind, onclick: () => act(name, label) }, label);
  }
  /** What can be done with the job; who works by keys stays where they are. */
  function offer(job) {
    if (job.state === offered) return;
    offered = job.state;
    const here = pressed ?? (actions.contains(document.activeElement) ? document.activeElement.textContent : null);
    fill(actions,
      job.state === "running" || job.state === "queued" ? button("pause", "Pause", "quiet") : null,
      job.state === "paused" || job.state === "pausing" ? button("resume", "Resume", "") : null,
      job.ended || job.state === "cancelling" ? null : button("cancel", "Cancel", "danger"),
      h("a", { class: "button quiet", href: `#/jobs/${encodeURIComponent(id)}/episodes` }, "Episodes"),
      h("a", { class: "button quiet", href: `#/models/${encodeURIComponent(id)}` }, "Checkpoints"),
      h("a", { class: "button quiet", href: `#/evaluations?${new URLSearchParams({ job: id })}` }, "Evaluations"),
      h("a", { class: "button quiet", href: `#/compare?a=${encodeURIComponent(id)}` }, "Compare"));
    if (here !== null && document.activeElement === document.body) {
      ([...actions.children].find((each) => each.textContent === here) ?? actions.firstChild).focus();
    }
  }
  function found(event) {
    if (event.finding && event.type === "warning") findings.set(event.finding, event.message);
    if (event.finding && event.type === "recovery") findings.delete(event.finding);
  }
  function counts(job) {
    if (!last) return;
    const parts = ["episodes_running", "episodes_waiting", "groups_collected", "phase", "wait", "remaining_seconds"];
    for (const part of parts) last[part] = job[part];
    words_();
  }
  function words_() {
    fill(doing, last.ended ? ended(last) : now(last));
    const running = last.episodes_running;
    fill(cards,
      card(`${last.completed_steps}${last.steps ? ` / ${last.steps}` : ""}`, "steps"),
      card(number(last.metrics.reward_mean, 3), "reward of the last step"),
      card(percent(last.metrics.success_mean), "success of the last step"),
      running !== null ? card(String(running), "episodes running") : null,
      last.episodes_waiting !== null ? card(String(last.episodes_waiting), "episodes queued") : null,
      last.groups_collected !== null ? card(`${last.groups_collected} / ${last.groups_per_step}`, "groups collected") : null,
      ...["train/kl_reference", "train/entropy"].filter((name) => name in last.metrics)
        .map((name) => card(number(last.metrics[name], 3), labelled(name))));
  }
  function update(job) {
    last = { ...job };
    fill(state, badge(job));
    meter.max = job.steps || 1;
    meter.value = job.completed_steps;
    words_();
    fill(place, [job.pool ? `pool ${job.pool}` : "", job.trainer_pool ? `trainer pool ${job.trainer_pool}` : ""]
      .filter(Boolean).join(" · "));
    fill(notes,
      job.failure ? h("div", { class: "problem", role: "alert" }, h("p", {}, h("b", {}, job.failure_reason, " "), job.failure)) : null,
      job.wait && !job.ended ? h("p", { class: "note" }, h("b", {}, job.wait_reason, " "), job.wait) : null,
      [...findings.values()].map((text) => h("p", { class: "note" }, text)),
      job.not_finite.length ? h("p", { class: "problem" }, `No number in the last step: ${job.not_finite.map(words).join(", ")}.`) : null);
    offer(job);
  }
  function lost(message) {
    lostNote.hidden = !message;
    fill(lostNote, message);
  }
  const element = h("header", {},
    h("div", { class: "row spread" }, h("h1", {}, id, " ", state), actions),
    doing, meter, place, lostNote, notes, cards);
  return { element, update, counts, found, lost };
}

function used(usage) {
  const rows = [["tokens of prompts", number(usage.prompt_tokens)], ["tokens sampled", number(usage.sampled_tokens)],
    ["tokens trained on", number(usage.trained_tokens)], ["tokens that a teacher read", number(usage.teacher_tokens)], ["hours of a trainer", hours(usage.trainer_seconds)],
    ["GPU hours, trainer", hours(usage.trainer_gpu_seconds)], ["GPU hours, share of the pool", hours(usage.pool_gpu_seconds)],
    ["GPU cost", money(usage.gpu_cost)], ["tokens of judges", number(usage.judge_tokens)], ["judges' cost", money(usage.judge_cost || null)]];
  return h("details", { class: "panel used" }, h("summary", {}, "What it had used when this page was opened"),
    h("table", {}, h("tbody", {}, rows.map(([what, value]) => h("tr", {}, h("th", { scope: "row" }, what), h("td", { class: "n" }, value))))),
    h("p", {}, h("a", { href: "#/usage" }, "All jobs' and projects'")));
}

function ended(job) {
  const took = job.started && job.ended_at ? ` after ${duration(job.ended_at - job.started)}` : "";
  return `${job.state} ${when(job.ended_at)}${took} · ${[job.environment, job.base_model, job.project].filter(Boolean).join(" · ")}`;
}

function charts(steps, evaluations) {
  const grid = h("div", { class: "grid2" });
  const note = h("p", { class: "soft" });
  const more = h("div", { class: "grid2" });
  const others = h("details", { class: "others" }, h("summary", {}, "Every other number"), more);
  const learning = lineChart("Learning", "reward and success by step", [
    ...[REWARD, SUCCESS].map((name, at) => ({ label: labelled(name), style: at + 1 })),
    // Of two sizes: where both are the same, one sees both.
    { label: "held-out, sampled", style: 3, dots: 10 }, { label: "held-out, greedy", style: 4, dots: 6 },
  ], { height: 260, shared: "steps" });
  learning.panel.classList.add("wide");
  const phases = stackedChart("Time of a step", "seconds by phase", { shared: "steps" });
  const panels = new Map();
  let due = null;

  function column(name) { return steps.metrics[name] ?? steps.numbers.map(() => null); }
  function one(name, place) {
    if (!panels.has(name)) {
      const [title, unit] = titled(name);
      const made = lineChart(title, unit, [{ label: words(name), style: 1 + (panels.size % 6) }], { shared: "steps" });
      panels.set(name, made);
      place.append(made.panel);
    }
    panels.get(name).set(steps.numbers, [column(name)]);
  }
  function show() {
    due = null;
    const mean = meanOf(steps.numbers.length);
    note.hidden = steps.every === 1 && !steps.not_finite.length && !mean;
    fill(note, steps.every > 1 ? `Each point is the mean of ${steps.every} steps. ` : "",
      mean ? `Thick lines are the mean of the last ${mean} points. ` : "",
      steps.not_finite.length ? `Points are missing where there was no number: ${steps.not_finite.map(words).join(", ")}.` : "");
    const rows = evaluations.filter((each) => each.metrics.success !== undefined && each.metrics.success !== null);
    const at = (mode) => new Map(rows.filter((each) => each.mode === mode).map((each) => [each.version, each.metrics.success]));
    const [sampled, greedy] = [at("sampled"), at("greedy")];
    const x = [...new Set([...steps.numbers, ...sampled.keys(), ...greedy.keys()])].sort((a, b) => a - b);
    const place = new Map(steps.numbers.map((number_, index) => [number_, index]));
    const spread = (values) => x.map((number_) => (place.has(number_) ? values[place.get(number_)] : null));
    learning.set(x, [spread(column(REWARD)), spread(column(SUCCESS)),
      x.map((v) => sampled.get(v) ?? null), x.map((v) => greedy.get(v) ?? null)]);
    if (!learning.panel.isConnected) grid.prepend(learning.panel);
    const names = Object.keys(steps.metrics).filter((name) => name.startsWith("seconds/"));
    if (names.length) {
      const total = (name) => column(name).reduce((sum, value) => sum + (value ?? 0), 0);
      names.sort((a, b) => total(b) - total(a));
      const rest = names.splice(5);
      const columns = names.map(column);
      if (rest.length) columns.push(steps.numbers.map((_, i) => rest.reduce((sum, name) => sum + (column(name)[i] ?? 0), 0)));
      phases.set(steps.numbers, [...names.map(words), ...(rest.length ? ["other"] : [])], columns);
      if (!phases.panel.isConnected) grid.append(phases.panel);
    }
    for (const name of PANELS) if (name in steps.metrics) one(name, grid);
    if (others.open) {
      for (const name of Object.keys(steps.metrics)) {
        if (!CURVES.includes(name) && !name.startsWith("seconds/")) one(name, more);
      }
    }
  }
  others.addEventListener("toggle", show);
  /** Many steps may come at once; what is shown changes once a frame. */
  function soon() { due ??= requestAnimationFrame(show); }
  function add(step) {
    if (step.number <= (steps.numbers.at(-1) ?? 0)) return;
    push(steps, step);
    soon();
  }
  function evaluated(evaluation) {
    evaluations = evaluations.filter((each) => each.version !== evaluation.version || each.mode !== evaluation.mode);
    evaluations.push(evaluation);
    soon();
  }
  soon();
  return {
    element: h("section", { "aria-label": "Curves" }, note, grid, others), add, evaluated,
    end: () => cancelAnimationFrame(due),
  };
}

function eventList(path, page, signal) {
  const list = h("ol", { class: "events", tabindex: 0 });
  const older = h("button", { class: "quiet", hidden: true }, "Older events");
  let first = page.events[0]?.sequence ?? 0;
  let last = page.last;
  function item(event) {
    return h("li", { class: `of-${event.type}` },
      h("time", {}, when(event.time)), h("span", { class: "kind" }, event.type), h("span", {}, event.message));
  }
  function mark() { older.hidden = first <= 1; }
  older.addEventListener("click", async () => {
    try {
      const found = await get(`${path}/events`, { before: first, size: EVENTS }, signal);
      list.append(...found.events.reverse().map(item));
      first = found.events.at(-1)?.sequence ?? 1;
      mark();
    } catch (error) { toast(error.message); }
  });
  list.append(...[...page.events].reverse().map(item));
  mark();
  return {
    element: h("section", { class: "panel" }, h("h2", {}, "Events"), list, older),
    add(event) {
      if (event.sequence <= last) return;
      last = event.sequence;
      list.prepend(item(event));
      // Of a long watch the list keeps what one can read.
      while (list.children.length > 500) { list.lastChild.remove(); older.hidden = true; }
    },
  };
}
