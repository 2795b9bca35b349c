// One episode to read: every turn, the tools, the rewards, and what the judge said.
import { get } from "../api.js";
import { fill, h, hold, toast } from "../dom.js";
import { duration, number, words } from "../format.js";
import { card } from "./jobs.js";

export async function episodePage({ main, signal, query }, job) {
  const id = query.get("id") ?? "";
  const path = `/api/jobs/${encodeURIComponent(job)}/episode`;
  const first = await get(path, { id }, signal);
  const turns = h("ol", { class: "turns" });
  const more = h("button", { class: "quiet" }, "More turns");
  let shown = 0;
  let history = 0;
  const ask = (message, part, offset) => get(`${path}/text`, { id, message, part, offset }, signal);

  function add(page) {
    for (const message of page.messages) {
      if (message.history !== history) {
        history = message.history;
        turns.append(h("li", { class: "divider" }, `a new history${first.conversations[history] ? `: ${first.conversations[history]}` : ""}`,
          message.repeated ? ` (its first ${number(message.repeated)} messages are those of the one before)` : ""));
      }
      turns.append(turn(message, ask));
      shown += 1;
    }
    more.hidden = page.next === null;
    more.onclick = async () => {
      const free = hold(more);
      try { add(await get(path, { id, start: page.next }, signal)); } catch (error) { toast(error.message); }
      free();
    };
  }
  const [, step] = id.match(/\/[sv](\d+)/) ?? [];
  const evaluation = /^[^/]+\/v\d/.test(id);
  const list = new URLSearchParams({ step: step ?? "", ...(evaluation ? { evaluation: "1" } : {}) });
  fill(main,
    h("p", { class: "crumbs" }, h("a", { href: `#/jobs/${encodeURIComponent(job)}` }, job), " / ",
      h("a", { href: `#/jobs/${encodeURIComponent(job)}/episodes?${list}` }, evaluation ? `version ${step}` : `step ${step}`), " / episode"),
    h("h1", {}, first.scenario || "Episode", " ", h("span", { class: `state ${first.failure ? "failed" : ""}` }, first.stop_reason.replaceAll("_", " "))),
    h("p", { class: "soft" }, id),
    h("div", { class: "cards" },
      card(number(first.reward ?? first.environment_reward, 3), "reward"),
      ...Object.entries(first.parts).map(([name, value]) => card(number(value, 3), `of it: ${words(name)}`)),
      card(String(first.turns), "turns"), card(String(first.tokens), "tokens sampled"),
      card(duration(first.seconds), "took"),
      card(first.versions.join(", ") || "–", "version of the weights")),
    first.failure ? h("div", { class: "problem" }, h("p", {}, first.failure),
      first.traceback ? h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, first.traceback)) : null) : null,
    first.explanation.text || first.opinions.length ? h("section", { class: "panel judge" }, h("h2", {}, "The judge"),
      first.explanation.text ? text(first.explanation, (offset) => ask(0, "explanation", offset)) : null,
      opinions(first.opinions)) : null,
    h("section", { "aria-label": "Turns" }, turns, more),
    details(first));
  add(first);
}

function turn(message, ask) {
  return h("li", { class: `turn ${message.role}` },
    h("p", { class: "who" }, message.role, message.name ? ` · ${message.name}` : "", message.turn ? earned(message.turn) : null),
    message.reasoning.chars ? h("details", { class: "thoughts" }, h("summary", {}, `Thoughts (${number(message.reasoning.chars)} characters)`),
      text(message.reasoning, (offset) => ask(message.index, "reasoning", offset))) : null,
    message.content.chars ? text(message.content, (offset) => ask(message.index, "content", offset)) : null,
    message.calls.map((call, at) => h("div", { class: "call" },
      h("p", { class: "who" }, `calls ${call.name}`),
      text(call.arguments, (offset) => ask(message.index, `call:${at}`, offset)))),
    message.malformed.map((each) => h("p", { class: "note" }, "A call that could not be read: ", each)));
}

/** Which turn it is, and what the environment paid for it. */
function earned(turn) {
  const paid = turn.reward === null ? "" : ` · reward ${turn.reward > 0 ? "+" : ""}${number(turn.reward, 3)}`;
  return h("span", { class: "paid" }, ` · turn ${turn.number}${paid}${turn.ends ? ` · ${turn.ends}` : ""}`);
}

/** Who judged, what each gave, and how it was asked. */
function opinions(found) {
  if (!found.length) return null;
  const names = ["Scorer", "Judge", "Score", "Place", "Temperature", "Seed", "Ended by", "Prompt"];
  return h("details", {}, h("summary", {}, `How the judges were asked (${found.length})`),
    h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, found.map((each) => h("tr", {}, h("td", {}, each.part),
        h("td", {}, each.model || "–", h("p", { class: "soft" }, each.address)),
        h("td", {}, each.failure ? `does not count: ${each.failure}` : number(each.score, 3)),
        h("td", {}, each.place ?? "–"), h("td", {}, each.temperature === null ? "–" : number(each.temperature, 3)),
        h("td", {}, each.seed || "–"),
        h("td", {}, each.finish_reason || "–", each.cached ? " (known already)" : "", each.refused ? h("p", { class: "soft" }, `refuses ${each.refused}`) : null),
        h("td", {}, h("code", { title: each.prompt_digest }, each.prompt_digest.slice(0, 12)),
          each.order_seed ? h("p", { class: "soft" }, `order of ${each.order_seed}`) : null))))));
}

/** A text, of a long one its beginning; the rest comes when it is asked for. */
function text(found, ask) {
  const pre = h("pre", {}, found.text);
  if (found.chars <= found.text.length) return pre;
  // Characters of Python's, which counts what JavaScript counts as two once.
  let at = [...found.text].length;
  if (at >= found.chars) return pre;
  const button = h("button", { class: "quiet small" }, `Show the other ${number(found.chars - at)} characters`);
  button.addEventListener("click", async () => {
    const free = hold(button);
    try {
      const slice = await ask(at);
      pre.append(slice.text);
      at = slice.next ?? slice.chars;
      if (slice.next === null) button.remove();
      else fill(button, `Show the other ${number(slice.chars - at)} characters`);
    } catch (error) { toast(error.message); }
    free();
  });
  return h("div", {}, pre, button);
}

function details(found) {
  const numbers = Object.entries(found.metrics);
  const rewards = found.transitions;
  return h("section", {},
    found.tools.length ? h("details", { class: "panel" }, h("summary", {}, `Tools (${found.tools.length})`),
      found.tools.map((tool) => h("div", {}, h("h3", {}, tool.name), h("p", {}, tool.description),
        tool.parameters ? h("pre", {}, tool.parameters) : null))) : null,
    rewards.length ? h("details", { class: "panel" }, h("summary", {}, `Steps of the environment (${rewards.length})`),
      h("table", {}, h("thead", {}, h("tr", {}, ["Step", "Reward", "Ends", "State"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rewards.map((each, at) => h("tr", {}, h("td", {}, at + 1), h("td", {}, number(each.reward, 3)),
          h("td", {}, each.ends), h("td", {}, each.state ? h("pre", {}, each.state) : "")))))) : null,
    numbers.length || found.info ? h("details", { class: "panel" }, h("summary", {}, "Numbers and what the environment tells"),
      h("dl", { class: "numbers" }, numbers.map(([name, value]) => [h("dt", {}, words(name)), h("dd", {}, number(value))])),
      found.info ? h("pre", {}, found.info) : null) : null,
    found.trace_id ? h("p", { class: "soft" }, "Trace ", trace(found),
      found.traced ? null : " (in logs alone: this rollout was not traced)") : null);
}

/** Its id; a link where the service knows its page, which it holds to http and https. */
function trace(found) {
  const id = h("code", {}, found.trace_id);
  return found.trace_url ? h("a", { href: found.trace_url, target: "_blank", rel: "noopener noreferrer" }, id) : id;
}
