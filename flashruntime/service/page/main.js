// Brings coordinator and page together: loads, follows, survives restarts, says how fresh it is.

import { follow, get, Refused, token } from "./api.js";
import { showNoTask, showTask } from "./details.js";
import { $, atMostEvery, duration, forgetColors, number, text } from "./dom.js";
import { Grid } from "./grid.js";
import { showEvents, showJobs, showLeases, showNodes } from "./lists.js";
import { indexOf, Model } from "./model.js";
import { Timeline } from "./timeline.js";
import { describe } from "./words.js";

const HISTORY = 3000, STALE_MS = 12000, LOST_WINDOW_MS = 15 * 60 * 1000;
const NODES_MS = 2000, REFRESH_MS = 1000, RETRY_MS = [300, 600, 1000, 2000, 3000];
const TOLD = new Set(["JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED", "LEASE_EXPIRED"]);

const model = new Model();
const grid = new Grid(model, (index, move) => chooseTask(model.selected, index, move));
const line = new Timeline(model, (job, index) => chooseTask(job, index, false));
let filter = "all", heardAt = 0, state = "connecting", failures = 0, followed = false;

// --- what is chosen stands in the address

function readAddress() {
  const named = new URLSearchParams(location.hash.slice(1));
  const task = named.get("task");
  return { job: named.get("job"), task: task !== null && /^\d{1,6}$/.test(task) ? Number(task) : null };
}

function writeAddress() {
  const named = new URLSearchParams();
  if (model.selected) named.set("job", model.selected);
  if (model.task !== null) named.set("task", String(model.task));
  history.replaceState(null, "", `#${named}`);
}

function chooseJob(jobId) {
  model.task = null;
  if (jobId !== model.selected) {
    model.select(jobId);
    grid.reset();
    loadGrid();
  }
  showNoTask();
  writeAddress();
  paint();
}

async function chooseTask(jobId, index, move) {
  if (jobId !== model.selected) chooseJob(jobId);
  model.task = index;
  grid.cursor = index;
  writeAddress();
  await refreshTask();
  if (move) $("detail-title").focus();
}

// --- loading; each at most once a second, however much happens

async function attempted(call) {
  try {
    await call();
    failures = 0;
  } catch (error) {
    failed(error);
  }
}

function failed(error) {
  if (error instanceof Refused && (error.status === 401 || error.status === 403)) askForToken(error.message);
  else if (error instanceof Refused && error.status === 404) return;
  else if (error instanceof Refused) say(`The coordinator refuses: ${error.message}`);
}

const refreshOverview = atMostEvery(REFRESH_MS, () => attempted(async () => {
  model.overview(await get("/overview"));
  if (!model.selected && model.jobs.size) {
    const wanted = readAddress();
    chooseJob(model.jobs.has(wanted.job) || wanted.job ? wanted.job : model.jobs.keys().next().value);
    if (wanted.job && wanted.task !== null) chooseTask(wanted.job, wanted.task, false);
  }
  paint();
}));

const loadGrid = () => attempted(async () => {
  if (!model.selected) return;
  try {
    model.grid(await get(`/jobs/${encodeURIComponent(model.selected)}/grid`));
  } catch (error) {
    if (error instanceof Refused && error.status === 404) chooseJob(model.jobs.keys().next().value ?? null);
    else throw error;
  }
  grid.render();
});
const refreshGrid = atMostEvery(REFRESH_MS, loadGrid);

const refreshNodes = () => attempted(async () => {
  model.nodes = (await get("/nodes")).items;
  paint();
});

async function refreshTask() {
  const [job, index] = [model.selected, model.task];
  if (index === null || !job) return;
  await attempted(async () => {
    const path = `/jobs/${encodeURIComponent(job)}/tasks`;
    const [page, events] = await Promise.all([get(`${path}?after=${index - 1}&limit=1`.replace("after=-1&", "")), get(`${path}/${index}/events`)]);
    if (job !== model.selected || index !== model.task) return;
    if (page.items.length) showTask(model, page.items[0], events.items);
    else showNoTask(`This job has no task ${index}.`);
  });
  grid.render();
}

// --- following

async function begin() {
  const told = await get("/overview");
  const past = await get(`/history?limit=${HISTORY}`);
  if (model.instance !== told.coordinator.instance && past.last_id < model.lastId) {
    const kept = model.selected;
    model.clear();
    model.selected = kept;
  }
  model.instance = told.coordinator.instance;
  model.skew = Date.parse(told.now) - Date.now();
  for (const event of past.items) model.apply(event);
  model.lastId = Math.max(model.lastId, past.last_id);
  refreshOverview();
  refreshGrid();
  refreshNodes();
  refreshTask();
}

async function stay() {
  for (;;) {
    const ending = new AbortController();
    const watch = setInterval(() => { if (Date.now() - heardAt > STALE_MS) ending.abort(); }, 1000);
    try {
      heardAt = Date.now();
      await begin();
      followed = true;
      await follow(model.lastId, { signal: ending.signal, event: happened, heard: () => { heardAt = Date.now(); failures = 0; show("live"); } });
    } catch (error) {
      failed(error);
    }
    clearInterval(watch);
    show(followed ? "stale" : "connecting");
    await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] * (0.75 + Math.random() / 2)));
    if (waitsForToken) await waitsForToken;
  }
}

function happened(id, event) {
  if (!event) {
    if (id !== null) model.lastId = Math.max(model.lastId, id);
    return;
  }
  if (!model.apply(event)) return;
  paint();
  refreshOverview();
  if (event.job_id === model.selected) {
    refreshGrid();
    if (event.task_id && indexOf(event.task_id) === model.task) refreshShownTask();
  }
  if (TOLD.has(event.type)) say(describe(event, model.jobs.get(event.job_id)?.name ?? event.job_id)[0]);
}

const refreshShownTask = atMostEvery(REFRESH_MS, () => refreshTask());

// --- painting, at most once a frame

let painting = false;
function paint() {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => { painting = false; paintNow(); });
}

function paintNow() {
  const job = model.jobs.get(model.selected);
  const since = model.now() - LOST_WINDOW_MS;
  const lost = model.lostSince(since);
  text($("figure-jobs"), number(model.open.jobs));
  text($("figure-pending"), number(model.open.PENDING));
  text($("figure-leased"), number(model.open.LEASED));
  text($("figure-nodes"), number(model.nodes.filter((node) => node.status === "live").length));
  text($("figure-lost"), number(lost));
  $("figure-lost").dataset.tone = lost ? "bad" : "";
  const median = model.medianRecovery(since);
  text($("figure-recovery"), median === null ? "–" : duration(median));
  text($("tasks-title"), job ? job.name : "Tasks");
  text($("tasks-sub"), job ? `${job.state.toLowerCase()} · ${job.job_id}` : "");
  $("job-reason").hidden = !job?.reason;
  text($("job-reason"), job?.reason ?? "");
  showJobs(model, chooseJob);
  showNodes(model);
  showEvents(model, filter);
  if ($("leases").closest("details").open) showLeases(model, (jobId, index) => chooseTask(jobId, index, true));
  grid.render();
  line.draw();
  const told = model.coordinator;
  if (told) text($("about"), `flashruntime ${told.version}, started ${new Date(told.started_at).toLocaleString("en-GB")}, ${number(told.event_streams)} watching`);
}

function show(next) {
  state = next;
  const age = Date.now() - heardAt;
  const stale = next === "stale";
  $("connection").dataset.state = next;
  text($("connection-text"), { live: "Live", connecting: "Connecting", stale: "Reconnecting" }[next]);
  document.body.toggleAttribute("data-stale", stale);
  $("banner").hidden = !stale;
  if (stale) text($("banner"), `The coordinator does not answer. What is shown is ${duration(Math.floor(age / 1000) * 1000)} old; the page goes on by itself when it is back.`);
}

function say(words) { text($("announce"), words); }

// --- token and theme

let waitsForToken = null, tokenGiven = null;
function askForToken(why) {
  $("token-button").hidden = false;
  if (waitsForToken) return;
  waitsForToken = new Promise((done) => { tokenGiven = done; });
  text($("token-why"), token.get() ? `It was refused: ${why}` : "It is kept in this tab until it is closed, and sent to this coordinator only.");
  $("token").value = "";
  $("token-dialog").showModal();
}

function gaveToken() {
  waitsForToken = null;
  tokenGiven?.();
}

$("token-form").addEventListener("submit", () => { token.set($("token").value.trim()); gaveToken(); });
$("token-cancel").addEventListener("click", () => { $("token-dialog").close(); });
$("token-button").addEventListener("click", () => { $("token-dialog").showModal(); });

const THEMES = ["system", "light", "dark"];
function useTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  text($("theme").lastChild, theme);
  $("theme").setAttribute("aria-label", `Theme: ${theme}`);
  forgetColors();
  grid.render();
  line.draw();
}
function storedTheme() {
  const stored = localStorage.getItem("flashruntime-theme");
  return THEMES.includes(stored) ? stored : "system";
}
$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
  localStorage.setItem("flashruntime-theme", next);
  useTheme(next);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => useTheme(storedTheme()));

// --- the rest of the controls

$("events-filter").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  filter = button.dataset.filter;
  for (const other of $("events-filter").children) other.setAttribute("aria-pressed", String(other === button));
  paint();
});
$("detail-close").addEventListener("click", () => {
  model.task = null;
  showNoTask();
  writeAddress();
  $("grid").focus();
});
$("detail").addEventListener("keydown", (event) => { if (event.key === "Escape" && model.task !== null) $("detail-close").click(); });
$("leases").closest("details").addEventListener("toggle", paint);
addEventListener("hashchange", () => {
  const { job, task } = readAddress();
  if (job && task !== null) chooseTask(job, task, false);
  else if (job) chooseJob(job);
});

text($("address"), location.origin);
model.task = null;
useTheme(storedTheme());
setInterval(() => { if (!document.hidden) { if (state !== "connecting") show(state); line.draw(); } }, 1000);
setInterval(() => { if (!document.hidden && state === "live") refreshNodes(); }, NODES_MS);
stay();
