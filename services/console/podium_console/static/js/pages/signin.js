// The token goes to the server once, and stays in a cookie that no script can read.
import { post } from "../api.js";
import { fill, h, problem } from "../dom.js";

export function signInPage(main, signedIn) {
  document.title = "Sign in · Podium";
  const token = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const said = h("div", {});
  const form = h("form", { class: "panel narrow", onsubmit: send },
    h("h1", {}, "Sign in"),
    h("p", { class: "soft" }, "The services ask for a bearer token, the same as the command line presents. With ",
      h("code", {}, "podium up --auth"), " it is in ", h("code", {}, ".podium/token"), "."),
    h("label", { for: "token" }, "Token"), token, said,
    h("div", { class: "row end" }, h("button", {}, "Sign in")));
  async function send(event) {
    event.preventDefault();
    try {
      await post("/session", { token: token.value });
      token.value = "";
      signedIn();
    } catch (error) {
      fill(said, problem(error.status === 401 ? new Error("The services do not take this token.") : error));
      token.select();
    }
  }
  fill(main, form);
  token.focus();
}
