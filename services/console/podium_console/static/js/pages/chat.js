// A chat with any policy. What a pool does not serve is loaded when one says so, and not before.
import { get, lines, post } from "../api.js";
import { fill, h, problem } from "../dom.js";
import { showPools } from "./jobs.js";

export async function chatPage({ main, query, signal, until }) {
  const policy = h("input", { id: "policy", value: query.get("policy") ?? "", placeholder: "base, job, job@7 or job@best", spellcheck: "false", autocapitalize: "off" });
  const pool = h("select", { id: "pool" }, h("option", { value: "" }, "any that can"));
  const temperature = h("input", { id: "temperature", type: "number", min: 0, max: 5, step: 0.1, value: "0.7" });
  const length = h("input", { id: "length", type: "number", min: 1, max: 131072, value: "256" });
  const system = h("textarea", { id: "system", rows: 2 });
  const said = h("div", { role: "status" });
  const talk = h("ol", { class: "turns chat", "aria-live": "polite", "aria-label": "The chat" });
  const words = h("textarea", { id: "words", rows: 3, required: true, placeholder: "Your message; Ctrl+Enter sends" });
  const send = h("button", {}, "Send");
  const stop = h("button", { type: "button", class: "quiet", hidden: true }, "Stop");
  const pools = h("div", {});
  let messages = [];
  let running = null;

  const form = h("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); say(); } },
    h("label", { for: "words" }, "Message"), words,
    h("div", { class: "row end" },
      h("button", { type: "button", class: "quiet", onclick: () => { messages = []; fill(talk); fill(said); } }, "Begin again"), stop, send));
  fill(main, h("h1", {}, "Chat"),
    h("div", { class: "panel" }, h("div", { class: "fields" },
      h("p", {}, h("label", { for: "policy" }, "Policy"), policy), h("p", {}, h("label", { for: "pool" }, "Pool"), pool),
      h("p", {}, h("label", { for: "temperature" }, "Temperature"), temperature),
      h("p", {}, h("label", { for: "length" }, "Longest answer, tokens"), length)),
    h("details", {}, h("summary", {}, "System message"), h("label", { for: "system", class: "hidden" }, "System message"), system),
    h("details", {}, h("summary", {}, "What the pools serve"), pools)),
    talk, said, form);
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); }
  });
  stop.addEventListener("click", () => running?.abort());
  until(() => running?.abort());

  async function lookAtPools() {
    const found = await get("/api/pools", {}, signal);
    const chosen = pool.value;
    fill(pool, h("option", { value: "" }, "any that can"), found.pools.map(({ name }) => h("option", { value: name }, name)));
    pool.value = chosen;
    showPools(pools, found.pools);
  }
  async function say() {
    const text = words.value.trim();
    if (!text || running) return;
    fill(said);
    const start = system.value.trim() ? [{ role: "system", content: system.value }] : [];
    const asked = [...messages, { role: "user", content: text }];
    const mine = bubble("user", text);
    const theirs = bubble("assistant", "");
    talk.append(mine, theirs);
    words.value = "";
    busy(new AbortController());
    let answer = "";
    try {
      const body = { policy: policy.value.trim(), pool: pool.value, temperature: Number(temperature.value),
        max_tokens: Number(length.value), messages: [...start, ...asked] };
      for await (const piece of lines("/api/chat", body, running.signal)) {
        if (piece.text) { answer += piece.text; theirs.lastChild.append(piece.text); }
        for (const call of piece.calls ?? []) theirs.append(h("p", { class: "who" }, `calls ${call.name}`), h("pre", {}, call.arguments));
        if (piece.finish_reason === "length") theirs.append(h("p", { class: "soft" }, "Cut at the longest answer."));
        theirs.scrollIntoView({ block: "nearest" });
      }
      messages = [...asked, { role: "assistant", content: answer }];
    } catch (error) {
      if (running.signal.aborted) {
        messages = [...asked, { role: "assistant", content: answer }];
      } else {
        mine.remove(); theirs.remove();
        words.value = text;
        fill(said, error.reason === "NOT_SERVED" ? offer(error) : problem(error));
      }
    }
    busy(null);
    if (!signal.aborted) words.focus();
  }
  function busy(now) {
    running = now;
    send.disabled = Boolean(now);
    stop.hidden = !now;
  }
  function offer(error) {
    const button = h("button", {}, "Load it and send");
    button.addEventListener("click", async () => {
      button.disabled = true;
      fill(button, "Loading…");
      try {
        const { gave_way: gone } = await post("/api/load", { policy: policy.value.trim(), pool: pool.value }, 330);
        fill(said, gone.length ? h("p", { class: "note" }, `${gone.map((each) => `${each.job}@${each.version}`).join(", ")} gave way.`) : null);
        await lookAtPools();
        await say();
      } catch (failure) { fill(said, problem(failure)); }
    });
    return h("div", { class: "note" }, h("p", {}, error.message, ". What the pool holds may have to give way, unless a job needs it."), button);
  }
  await lookAtPools().catch((error) => fill(pools, problem(error)));
  words.focus();
}

function bubble(role, text) {
  return h("li", { class: `turn ${role}` }, h("p", { class: "who" }, role), h("pre", {}, text));
}
