// A job's episodes, a page at a time: ten thousand are as quick as fifty.
import { get } from "../api.js";
import { fill, h, hold, problem } from "../dom.js";
import { duration, number } from "../format.js";

const SIZE = 50;

export async function episodesPage({ main, signal, query }, id) {
  const path = `/api/jobs/${encodeURIComponent(id)}`;
  const step = h("input", { id: "step", type: "number", min: 0, inputmode: "numeric", value: query.get("step") ?? "", placeholder: "all" });
  const kind = h("select", { id: "kind" }, h("option", { value: "" }, "training"), h("option", { value: "1" }, "evaluation"));
  kind.value = query.get("evaluation") ?? "";
  const label = h("label", { for: "step" });
  const body = h("tbody", {});
  const said = h("div", { role: "status" });
  const back = h("button", { class: "quiet" }, "Previous");
  const on = h("button", { class: "quiet" }, "Next");
  const place = h("span", { class: "soft" });
  // The tokens of the pages before this one.
  const turned = [""];
  let next = "";

  fill(main,
    h("p", { class: "crumbs" }, h("a", { href: `#/jobs/${encodeURIComponent(id)}` }, id), " / episodes"),
    h("h1", {}, "Episodes"),
    h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); begin(); } },
      h("span", { class: "together" }, h("label", { for: "kind" }, "Of"), kind),
      h("span", { class: "together" }, label, step,
        h("button", { type: "button", class: "quiet", "aria-label": "a step earlier", onclick: () => shift(-1) }, "−"),
        h("button", { type: "button", class: "quiet", "aria-label": "a step later", onclick: () => shift(1) }, "+"),
        h("button", {}, "Show"))),
    said,
    h("div", { class: "panel scroll" }, h("table", { class: "episodes" },
      h("thead", {}, h("tr", {}, ["Scenario", "Attempt", "Reward", "Turns", "Tokens", "Time", "Ended", "Judge"]
        .map((name, at) => h("th", { scope: "col", class: at > 0 && at < 6 ? "n" : "" }, name)))), body)),
    h("nav", { class: "row", "aria-label": "Pages of episodes" }, back, on, place));

  function shift(by) {
    step.value = Math.max(kind.value ? 0 : 1, Number(step.value || 0) + by);
    begin();
  }
  function begin() {
    turned.splice(0, turned.length, "");
    const where = new URLSearchParams();
    if (step.value !== "") where.set("step", step.value);
    if (kind.value) where.set("evaluation", "1");
    // The address is one to come back to; it makes no new page.
    history.replaceState(null, "", `#/jobs/${encodeURIComponent(id)}/episodes${where.size ? `?${where}` : ""}`);
    turn();
  }
  async function turn() {
    fill(label, kind.value ? "Version" : "Step");
    const free = hold(on, back);
    fill(said, h("p", { class: "soft" }, "Loading…"));
    try {
      const found = await get(`${path}/episodes`, { step: step.value, evaluation: kind.value, after: turned.at(-1), size: SIZE }, signal);
      next = found.next;
      fill(body, found.episodes.map((each) => row(id, each)));
      fill(said, found.episodes.length ? null : h("p", { class: "empty" }, "No episodes here."));
      fill(place, `page ${turned.length}`);
    } catch (error) {
      if (signal.aborted) return;
      fill(body);
      fill(said, problem(error, turn));
    }
    free((each) => (each === on ? next : turned.length > 1));
  }
  back.addEventListener("click", () => { turned.pop(); turn(); });
  on.addEventListener("click", () => { turned.push(next); turn(); });
  kind.addEventListener("change", begin);
  await turn();
}

function row(job, each) {
  const where = `#/jobs/${encodeURIComponent(job)}/episode?${new URLSearchParams({ id: each.id })}`;
  return h("tr", {},
    h("td", {}, h("a", { href: where }, each.scenario || each.id), h("span", { class: "soft" }, each.id)),
    h("td", { class: "n" }, each.attempt, each.side ? ` ${each.side}` : ""),
    h("td", { class: "n" }, number(each.reward ?? each.environment_reward, 3)),
    h("td", { class: "n" }, each.turns),
    h("td", { class: "n" }, each.tokens),
    h("td", { class: "n" }, duration(each.seconds)),
    h("td", {}, h("span", { class: `state ${each.failure ? "failed" : ""}` }, each.stop_reason.replaceAll("_", " ")),
      each.failure ? h("span", { class: "soft" }, each.failure) : null),
    h("td", { class: "words" }, each.explanation));
}
