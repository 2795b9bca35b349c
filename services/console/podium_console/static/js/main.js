// Which page is shown, who is signed in, and whether what is shown is live.
import { whenSignInIsNeeded, get, remove } from "./api.js";
import { drop } from "./charts.js";
import { fill, problem } from "./dom.js";
import * as live from "./live.js";
import { chatPage } from "./pages/chat.js";
import { comparePage } from "./pages/compare.js";
import { episodePage } from "./pages/episode.js";
import { episodesPage } from "./pages/episodes.js";
import { comparisonPage, evaluationPage, evaluationsPage } from "./pages/evaluations.js";
import { jobPage } from "./pages/job.js";
import { jobsPage } from "./pages/jobs.js";
import { modelPage, modelsPage } from "./pages/models.js";
import { signInPage } from "./pages/signin.js";
import { submitPage } from "./pages/submit.js";
import { usagePage } from "./pages/usage.js";

const ROUTES = [
  [/^\/$/, jobsPage, "Jobs"],
  [/^\/jobs\/([^/]+)$/, jobPage, (id) => id],
  [/^\/jobs\/([^/]+)\/episodes$/, episodesPage, (id) => `Episodes of ${id}`],
  [/^\/jobs\/([^/]+)\/episode$/, episodePage, (id) => `An episode of ${id}`],
  [/^\/compare$/, comparePage, "Compare"],
  [/^\/evaluations$/, evaluationsPage, "Evaluations"],
  [/^\/evaluations\/compare$/, comparisonPage, "Two evaluations"],
  [/^\/evaluations\/([^/]+)$/, evaluationPage, (id) => `Evaluation ${id}`],
  [/^\/models$/, modelsPage, "Checkpoints"],
  [/^\/models\/([^/]+)$/, modelPage, (name) => `Checkpoints of ${name}`],
  [/^\/chat$/, chatPage, "Chat"],
  [/^\/usage$/, usagePage, "Usage"],
  [/^\/submit$/, submitPage, "Submit"],
];
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const signOut = document.getElementById("sign-out");
let leave = () => {};

function show() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const found = ROUTES.map(([pattern, page, title]) => ({ match: path.match(pattern), page, title }))
    .find(({ match }) => match);
  leave();
  drop(main);
  const given = found?.match.slice(1).map(part) ?? [];
  const title = found ? (typeof found.title === "string" ? found.title : found.title(...given)) : "No such page";
  document.title = `${title} · Podium`;
  for (const link of document.querySelectorAll("nav a")) {
    const home = link.getAttribute("href").slice(1);
    const here = home === "/" ? path === "/" || path.startsWith("/jobs") : path.startsWith(home);
    if (here) {
      link.setAttribute("aria-current", "page");
      // On a phone the row of links is longer than the screen.
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  fill(main);
  window.scrollTo(0, 0);
  if (!found) { fill(main, problem(new Error("There is no such page."))); leave = () => {}; return; }
  const gone = new AbortController();
  const ends = [() => gone.abort()];
  const context = {
    main, signal: gone.signal, query: new URLSearchParams(query ?? ""),
    /** What is called when the page is left. */
    until: (end) => (gone.signal.aborted ? end() : ends.push(end)),
  };
  leave = () => { for (const end of ends) end(); leave = () => {}; };
  Promise.resolve(found.page(context, ...given)).catch((error) => {
    if (!gone.signal.aborted) fill(main, problem(error, show));
  });
}

function part(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function askForToken() {
  leave();
  live.end();
  signOut.hidden = true;
  signInPage(main, begin);
}

async function begin() {
  let session;
  try {
    session = await get("/session");
  } catch (error) {
    fill(main, problem(error, begin));
    return;
  }
  if (!session.welcome) { askForToken(); return; }
  signOut.hidden = !session.signed_in;
  live.start();
  show();
}

live.onConnection((state, error) => {
  connection.className = `connection ${state}`;
  fill(connection, state === "live" ? "live" : state === "lost" ? error.message : "");
});
whenSignInIsNeeded(askForToken);
// The address names the page, not a place on it.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
signOut.addEventListener("click", async () => { await remove("/session"); await begin(); });
window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); });
await begin();
