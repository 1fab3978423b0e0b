// One task: its attempts, why each ended, and what was done about it.

import { getText } from "./api.js";
import { $, duration, el, text, when } from "./dom.js";
import { Model } from "./model.js";
import { ACTIONS, OUTCOMES } from "./words.js";

const LINES = 100;
// What was opened stays open when the task is shown anew.
const outputs = new Map();
let shownTask = null;

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function pairs(entries) {
  const list = el("dl");
  for (const [name, value] of entries) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", {}, name), el("dd", {}, value));
  }
  return list;
}

function decisionOf(decision) {
  const pause = decision.backoff_s ? ` after ${decision.backoff_s.toFixed(1)} s` : "";
  const counted = decision.counts_as_error ? "counts as an error of the job" : "does not count as an error of the job";
  return el("p", { class: "decision" }, el("strong", {}, `${ACTIONS[decision.action] ?? decision.action}${pause}`), ` – ${decision.reason} (${counted}; policy ${decision.policy_version})`);
}

function evidenceOf(evidence) {
  if (!evidence) return "";
  const parts = [String(evidence.ended_by ?? "").replaceAll("_", " ")];
  if (evidence.exit_code !== undefined) parts.push(`exit code ${evidence.exit_code}`);
  if (evidence.signal !== undefined) parts.push(`signal ${evidence.signal}`);
  if (evidence.error_type) parts.push(`${evidence.error_type}: ${evidence.message ?? ""}`);
  if (evidence.oom_kills) parts.push(`${evidence.oom_kills} killed for memory`);
  return parts.filter(Boolean).join(", ");
}

function attemptOf(task, lease, more, now) {
  const item = el("li", { "data-outcome": lease.outcome });
  const state = { completed: "COMPLETED", failed: "FAILED", live: "LEASED", lost: "lost" }[lease.outcome] ?? "";
  const output = outputs.get(lease.id) ?? el("pre", { hidden: true, tabindex: "0", "aria-label": `Output of attempt ${lease.attempt}` });
  outputs.set(lease.id, output);
  const load = el("button", { type: "button", class: "link", "data-lease": lease.id, onclick: () => showOutput(task, lease, output) }, "Output");
  item.append(
    el("div", { class: "row" }, el("h3", {}, `Attempt ${lease.attempt ?? "?"}`), el("span", { class: "muted" }, `on ${lease.node}`), el("span", { class: "state", "data-state": state }, OUTCOMES[lease.outcome])),
    el("p", { class: "muted" }, `${when(lease.start)}, ${lease.end === null ? "for" : "held"} ${duration((lease.end ?? now) - lease.start)}${more.step ? `, step ${more.step}` : ""}${more.resumed ? `, resumed from step ${more.resumed}` : ""}`),
  );
  if (lease.why) item.append(el("p", {}, lease.why));
  const evidence = evidenceOf(more.evidence);
  if (lease.failure) item.append(el("p", {}, el("strong", {}, lease.failure.replaceAll("_", " ")), evidence ? ` (${evidence})` : ""));
  if (lease.decision) item.append(decisionOf(lease.decision));
  for (const call of more.refused) item.append(el("p", { class: "muted" }, `Came back too late: its ${call} was refused`));
  item.append(el("p", {}, load), output);
  return item;
}

async function showOutput(task, lease, output) {
  output.hidden = false;
  text(output, "…");
  try {
    const words = await getText(`/jobs/${encodeURIComponent(lease.job)}/logs?task=${task.index}&attempt=${lease.attempt}&tail_lines=${LINES}`);
    text(output, words || "It has printed nothing.");
  } catch (error) {
    text(output, error.status === 404 ? "It has printed nothing." : error.message);
  }
}

// Replays the task's own events, so that the page need not have seen them happen.
function replayed(events) {
  const model = new Model();
  const more = new Map();
  for (const event of events) {
    model.apply(event);
    if (!event.lease_id) continue;
    const about = more.get(event.lease_id) ?? { refused: [], evidence: null, step: null, resumed: null };
    more.set(event.lease_id, about);
    const { type, data } = event;
    if (type === "TASK_ATTEMPT_FAILED") { about.evidence = data.evidence; about.step = data.evidence?.step ?? about.step; }
    if (type === "TASK_COMMIT_ACCEPTED") { about.step = data.step ?? null; about.resumed = data.resumed_from ?? null; }
    if (type === "TASK_COMMIT_REJECTED" || type === "LEASE_REFUSED") about.refused.push(data.call ?? "complete");
  }
  return { leases: [...model.leases.values()], more };
}

export function showTask(model, task, events) {
  if (shownTask !== task.task_id) outputs.clear();
  shownTask = task.task_id;
  const focus = $("detail-body").contains(document.activeElement) ? document.activeElement : null;
  const { leases, more } = replayed(events);
  const job = model.jobs.get(task.job_id);
  text($("detail-title"), `Task ${task.index}`);
  const cancelled = task.state === "CANCELLED" || (job && job.finished_at && task.state !== "COMPLETED");
  for (const lease of leases) if (cancelled && lease.outcome === "live") Object.assign(lease, { outcome: "cancelled", end: Date.parse(job?.finished_at ?? "") || model.now() });
  const body = el("div", {},
    pairs([
      ["Job", job?.name ?? task.job_id], ["State", el("span", { class: "state", "data-state": task.state }, task.state.toLowerCase())],
      ["Reason", task.reason],
      ["Errors", task.errors ? `${task.errors} of the job's own` : null], ["Lost", task.losses ? `${task.losses} ${task.losses === 1 ? "attempt" : "attempts"}, at no cost to the job` : null],
      ...Object.entries(task.params ?? {}).map(([name, value]) => [name, shown(value)]),
      ...Object.entries(task.metrics ?? {}).slice(0, 12).map(([name, value]) => [name, shown(value)]),
    ]),
    el("h3", {}, leases.length === 1 ? "1 attempt" : `${leases.length} attempts`),
    el("ol", { class: "attempts" }, ...leases.toReversed().map((lease) => attemptOf(task, lease, more.get(lease.id), model.now()))),
  );
  if (task.outputs?.length) {
    body.append(el("h3", {}, "Outputs"), pairs(task.outputs.map((output) => [output.path, el("code", {}, output.sha256.slice(0, 16))])));
  }
  $("detail-body").replaceChildren(body);
  $("detail-close").hidden = false;
  if (focus?.dataset.lease) body.querySelector(`[data-lease="${CSS.escape(focus.dataset.lease)}"]`)?.focus();
  else if (focus?.isConnected) focus.focus();
}

export function showNoTask(words = "Choose a task to see its attempts, why they ended, and what was done.") {
  text($("detail-title"), "Details");
  $("detail-close").hidden = true;
  $("detail-body").replaceChildren(el("p", { class: "empty" }, words));
}
