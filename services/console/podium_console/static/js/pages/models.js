// Checkpoints: the models, a model's versions with their aliases, and what each came from.
import { get, post } from "../api.js";
import { asked, confirmed, fill, h, problem, toast } from "../dom.js";
import { bytes, number, percent, when } from "../format.js";

export async function modelsPage({ main, signal }) {
  const body = h("tbody", {});
  const more = h("button", { class: "quiet", hidden: true }, "More models");
  const said = h("div", {});
  let next = "";
  fill(main, h("h1", {}, "Checkpoints"), said,
    h("div", { class: "panel scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Model"), h("th", { scope: "col", class: "n" }, "Newest version"),
        h("th", { scope: "col", class: "n" }, "Versions"))), body), more));
  async function turn() {
    const page = await get("/api/models", { after: next }, signal);
    body.append(...page.models.map((each) => h("tr", {},
      h("td", {}, h("a", { href: `#/models/${encodeURIComponent(each.name)}` }, each.name)),
      h("td", { class: "n" }, each.latest), h("td", { class: "n" }, each.versions))));
    next = page.next;
    more.hidden = !next;
    if (!body.children.length) fill(said, h("p", { class: "empty" }, "No checkpoint yet: a job's first one comes before its first step."));
  }
  more.addEventListener("click", () => turn().catch((error) => fill(said, problem(error))));
  await turn();
}

export async function modelPage({ main, signal }, name) {
  const path = `/api/models/${encodeURIComponent(name)}`;
  const body = h("tbody", {});
  const more = h("button", { class: "quiet", hidden: true }, "Older versions");
  const shown = [];
  let next = "";
  fill(main,
    h("p", { class: "crumbs" }, h("a", { href: "#/models" }, "Checkpoints"), " / ", h("a", { href: `#/jobs/${encodeURIComponent(name)}` }, `job ${name}`)),
    h("h1", {}, name),
    h("div", { class: "panel scroll" }, h("table", { class: "versions" },
      h("thead", {}, h("tr", {}, ["Version", "Aliases", "Reward", "Success", "Held-out", "Size", "Published", "From", ""]
        .map((title, at) => h("th", { scope: "col", class: at > 1 && at < 6 ? "n" : "" }, title)))), body), more));

  async function turn() {
    const page = await get(path, { after: next }, signal);
    body.append(...page.versions.map((each) => row(each)));
    next = page.next;
    more.hidden = !next;
    if (!body.children.length) body.append(h("tr", {}, h("td", { colspan: 9 }, "This model has no versions.")));
  }
  function row(each) {
    const heldOut = Object.entries(each.evaluation).find(([key]) => key.includes("success"));
    const from = h("td", {});
    const tags = h("ul", { class: "tags" });
    shown.push({ each, tags });
    show();
    fill(from, each.parents.map((parent, at) => [at ? ", " : "", reference(parent)]),
      each.parents.length ? h("button", { class: "quiet small", "aria-label": `lineage of version ${each.version}`, onclick: () => lineage(each, from) }, "all") : "the base model");
    return h("tr", {},
      h("td", {}, h("b", {}, each.version), h("span", { class: "soft", title: each.has_state ? null : "It can be served, and not resumed or forked." }, each.has_state ? each.kind : `${each.kind}, no state`)),
      h("td", {}, tags, h("button", { class: "quiet small", "aria-label": `give version ${each.version} an alias`, onclick: () => name_(each) }, "alias")),
      h("td", { class: "n" }, number(each.metrics.reward_mean, 3)),
      h("td", { class: "n" }, percent(each.metrics.success_mean)),
      h("td", { class: "n", title: heldOut?.[0] }, heldOut ? percent(heldOut[1]) : "–"),
      h("td", { class: "n" }, bytes(each.bytes)),
      h("td", {}, when(each.created)), from,
      h("td", {}, h("a", { class: "button quiet small", href: `#/chat?${new URLSearchParams({ policy: `${name}@${each.version}` })}` }, "Chat")));
  }
  function show() {
    for (const { each, tags } of shown) fill(tags, each.aliases.map((alias) => h("li", {}, alias)));
  }
  async function name_(each) {
    const alias = await asked(`An alias for ${name}@${each.version}`, "Alias", "Next",
      { maxlength: 64, pattern: "[a-z]([a-z0-9\\-]*[a-z0-9])?", title: "lower-case letters, digits and dashes" });
    if (!alias) return;
    const place = `${path}/aliases/${encodeURIComponent(alias)}`;
    try {
      const { version } = await get(place, {}, signal);
      const was = version === null ? "It points nowhere now." : `It points at version ${version} now.`;
      if (version === each.version) { toast(`${alias} points at version ${version} already`, "good"); return; }
      if (!(await confirmed(`Point ${alias} of ${name} at version ${each.version}? ${was} Whoever asks for ${name}@${alias} gets the other one from then on.`, "Point it there"))) return;
      await post(place, { version: each.version, expected: version });
      for (const other of shown) other.each.aliases = other.each.aliases.filter((found) => found !== alias);
      each.aliases = [...each.aliases, alias].sort();
      show();
      toast(`${alias} points at version ${each.version}`, "good");
    } catch (error) { toast(error.message); }
  }
  async function lineage(each, place) {
    try {
      const { ancestors } = await get(`${path}/${each.version}/lineage`, {}, signal);
      fill(place, h("ol", { class: "lineage" }, [...runs(ancestors)].map(([first, last]) => h("li", {}, reference(first),
        last.version === first.version ? null : [" … ", reference(last)]))));
    } catch (error) { toast(error.message); }
  }
  more.addEventListener("click", () => turn().catch((error) => toast(error.message)));
  await turn();
}

/** Neighbours of one model together: 500 steps are one line. */
function* runs(ancestors) {
  let first = null;
  let last = null;
  for (const each of ancestors) {
    if (first && each.model === last.model && each.version === last.version - 1) { last = each; continue; }
    if (first) yield [first, last];
    first = last = each;
  }
  if (first) yield [first, last];
}

function reference(found) {
  return h("a", { href: `#/models/${encodeURIComponent(found.model)}` }, `${found.model}@${found.version}`);
}
