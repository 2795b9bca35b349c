// A job file, checked as the command line checks it.
import { post } from "../api.js";
import { fill, h, hold, problem, violation } from "../dom.js";

const EXAMPLE = `# Every key: podium job schema
base_model: smollm2-135m-instruct
environment:
  name: tic_tac_toe
rollout:
  group_size: 8
  groups_per_step: 8
training:
  steps: 20
  learning_rate: 2e-4
`;
const DRAFT = "podium-job-draft";

export async function submitPage({ main }) {
  const text = h("textarea", { id: "text", rows: 22, spellcheck: "false", wrap: "off", "aria-describedby": "said" });
  text.value = sessionStorage.getItem(DRAFT) ?? EXAMPLE;
  text.addEventListener("input", () => sessionStorage.setItem(DRAFT, text.value));
  const id = h("input", { id: "id", placeholder: "made by the server", pattern: "[a-z0-9]([\\-a-z0-9]*[a-z0-9])?", maxlength: 63, autocapitalize: "off", spellcheck: "false" });
  const said = h("div", { id: "said", role: "status" });
  const file = h("input", { id: "file", type: "file", accept: ".yaml,.yml,text/yaml" });
  file.addEventListener("change", async () => {
    if (!file.files[0]) return;
    text.value = await file.files[0].text();
    sessionStorage.setItem(DRAFT, text.value);
  });
  const check = h("button", { type: "button", class: "quiet", onclick: () => send(true) }, "Check only");
  const submit = h("button", {}, "Submit");
  // Sent twice, it is one job; what is changed is another.
  let request = { body: "", id: "" };

  async function send(dry) {
    const body = { text: text.value, id: id.value.trim() };
    if (JSON.stringify(body) !== request.body) request = { body: JSON.stringify(body), id: name() };
    const free = hold(check, submit);
    fill(said, h("p", { class: "soft" }, dry ? "Checking…" : "Submitting…"));
    try {
      const { job, warnings } = await post("/api/jobs", { ...body, dry_run: dry, request_id: dry ? "" : request.id });
      const notes = warnings.map((each) => h("p", { class: "note" }, each));
      if (dry) {
        fill(said, notes, h("p", { class: "fine" }, "The file is valid; nothing was created."),
          h("details", {}, h("summary", {}, "With every default"), h("pre", {}, job.spec)));
      } else {
        sessionStorage.removeItem(DRAFT);
        location.hash = `#/jobs/${encodeURIComponent(job.id)}`;
      }
    } catch (error) {
      fill(said, error.violations?.length
        ? h("div", { class: "problem", role: "alert" }, h("p", {}, `The file is not a valid job (${error.violations.length} ${error.violations.length > 1 ? "problems" : "problem"})`),
          h("ul", {}, error.violations.map((each) => h("li", {}, each.line ? h("button", { type: "button", class: "link", onclick: () => goTo(text, each.line) }, violation(each)) : violation(each)))))
        : problem(error));
    }
    free();
  }
  fill(main, h("h1", {}, "Submit a job"),
    h("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); send(false); } },
      h("div", { class: "fields" }, h("p", {}, h("label", { for: "id" }, "Id"), id), h("p", {}, h("label", { for: "file" }, "From a file"), file)),
      h("label", { for: "text" }, "Job file"), text, said, h("div", { class: "row end" }, check, submit)));
}

/** A name that nothing else has; a page by plain HTTP has no randomUUID. */
function name() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function goTo(text, line) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  text.scrollTop = Math.max(0, line - 4) * parseFloat(getComputedStyle(text).lineHeight);
}
