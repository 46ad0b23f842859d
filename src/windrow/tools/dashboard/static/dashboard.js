// The page of `windrow dashboard`. Each view draws what its JSON twin at /api/VIEW has, and nothing else; what is shown
// (run, view, time span, filters, settings that are tried) stands in the address.

import { $, ask, el, keepingPlace, refresh, rights, state, time } from "./elements.js";
import { forget, repaint } from "./charts.js";
import { HISTORY_VIEWS } from "./history_views.js";
import { SVG_VIEWS } from "./svg_views.js";
import { TABLE_VIEWS } from "./table_views.js";

const { overview, watermark, time: eventTime, ...others } = HISTORY_VIEWS;
const VIEWS = { overview, watermark, time: eventTime, ...SVG_VIEWS, ...others, ...TABLE_VIEWS };

/** What a view is asked for, besides its run. */
const ASKED = {
  overview: ["span"],
  time: ["span"],
  throughput: ["span"],
  windows: ["span"],
  lateness: ["delay", "lateness"],
  revisions: ["sink"],
  dead: ["sink", "reason"],
  late: ["sink"],
  key: ["sink", "window_start"],
};

let update = null;
let asking = 0;
let source = null;

function twin(view) {
  const params = new URLSearchParams({ run: state.get("run") || "" });
  if (view === "key")
    for (const [name, value] of new URLSearchParams(location.search))
      if (name.startsWith("key.") && value) params.set(name, value);
  for (const name of ASKED[view] || []) if (state.get(name)) params.set(name, state.get(name));
  return `/api/${view}?${params}`;
}
async function redraw() {
  const mine = ++asking,
    name = current();
  $("twin").href = twin(name);
  try {
    const [data, over] = await Promise.all([ask(twin(name)), name === "overview" ? null : ask(twin("overview"))]);
    if (mine !== asking) return;
    $("problem").hidden = true;
    say(over || data);
    keepingPlace($("view"), () => update(data));
    $("partial").hidden = !(data.partial && ["overview", "time", "lateness", "throughput"].includes(name));
    if (data.partial)
      $("partial").textContent =
        `The history is longer than what is shown: the newest steps, since ${time(data.partial.since)}.` +
        (name === "overview" ? ` The counts are of all since ${time(data.partial.counts_since)}.` : "");
    document.body.dataset.version = data.version;
    document.body.dataset.view = name;
  } catch (error) {
    if (mine !== asking) return;
    $("problem").textContent = error.message;
    $("problem").hidden = false;
    document.body.dataset.view = name;
  }
}
function say(data) {
  const worst =
    ["bad", "warn"].map((level) => data.answers.find((answer) => answer.level === level)).find(Boolean) ||
    data.answers[0];
  const first = data.answers[0];
  // without numbers: it is read out whenever it changes
  const said = worst === first ? first.summary : `${first.summary}; ${worst.summary}`;
  if ($("status-text").textContent !== said) $("status-text").textContent = said;
  $("status").className = worst.level;
  $("origin").textContent = [
    data.host ? `${data.run} on ${data.machine}, ${data.host} host.` : `${data.run}.`,
    data.committed ? `Last commit ${time(data.committed)}.` : "",
  ].join(" ");
}
const current = () => (VIEWS[state.get("view")] ? state.get("view") : "overview");

/** Show the view that the address names. */
function show() {
  const name = current(),
    view = VIEWS[name];
  forget();
  document.title = `${view.title} – ${state.get("run")} – windrow`;
  $("title").textContent = view.title;
  $("intro").textContent = view.intro;
  $("problem").hidden = true;
  $("span").parentElement.hidden = !(ASKED[name] || []).includes("span");
  $("span").value = state.get("span") || "all";
  for (const link of $("views").querySelectorAll("a")) {
    if (link.dataset.view === name) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  const root = el("div");
  $("view").replaceChildren(root);
  update = view.build(root);
  refresh();
}
/** Follow a link to a view without loading the page again. */
function go(event) {
  const link = event.target.closest("a[data-view]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  const params = new URLSearchParams({ run: state.get("run"), view: link.dataset.view });
  if (state.get("span")) params.set("span", state.get("span"));
  history.pushState(null, "", `?${params}`);
  show();
  $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
}
function follow() {
  if (source) source.close();
  source = new EventSource(`/events?run=${encodeURIComponent(state.get("run"))}`);
  let seen = null;
  source.addEventListener("version", (event) => {
    const version = JSON.parse(event.data).version;
    if (seen !== null && version !== seen) refresh();
    seen = version;
  });
  source.onerror = () => {
    $("status-text").textContent = "The dashboard does not answer";
    $("status").className = "warn";
  };
  source.onopen = () => refresh();
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
function paint() {
  const chosen = localStorage.getItem("theme") || "auto";
  document.documentElement.dataset.theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
  $("theme").textContent = THEMES[chosen];
  $("theme").setAttribute(
    "aria-label",
    `Colours: ${chosen === "auto" ? "as the system has them" : chosen}; press to change`,
  );
  repaint();
}

async function begin() {
  paint();
  dark.addEventListener("change", paint);
  $("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES),
      at = names.indexOf(localStorage.getItem("theme") || "auto");
    localStorage.setItem("theme", names[(at + 1) % names.length]);
    paint();
  });
  let known;
  try {
    known = await ask("/api/runs");
  } catch (error) {
    $("problem").textContent = error.message;
    $("problem").hidden = false;
    return;
  }
  rights.canWrite = known.can_write;
  const names = known.runs.map((run) => run.name);
  if (!names.includes(state.get("run"))) state.put("run", names[0]);
  $("run").append(...names.map((name) => el("option", { value: name }, name)));
  $("run").value = state.get("run");
  $("run").addEventListener("change", () => {
    for (const name of ["sink", "reason", "q", "delay", "lateness"]) state.put(name, "");
    state.put("run", $("run").value);
    show();
    follow();
  });
  $("span").addEventListener("change", () => {
    state.put("span", $("span").value === "all" ? "" : $("span").value);
    refresh();
  });
  $("views").append(
    ...Object.entries(VIEWS).map(([name, view]) =>
      el("li", {}, el("a", { href: `?view=${name}`, "data-view": name }, view.title)),
    ),
  );
  addEventListener("click", go);
  addEventListener("refresh", redraw);
  addEventListener("popstate", show);
  // a browser has few connections to a host, and each page that follows holds one
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else follow();
  });
  let resized = null;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(refresh, 150);
  });
  show();
  follow();
}
begin();
