// Jobs, nodes, leases and events as lists and tables.

import { $, duration, el, keyed, number, text, when } from "./dom.js";
import { indexOf } from "./model.js";
import { describe, OUTCOMES } from "./words.js";

const PARTS = ["COMPLETED", "LEASED", "FAILED", "CANCELLED"];
const EVENTS_SHOWN = 200;
const LEASES_SHOWN = 60;

const total = (job) => Object.values(job.tasks).reduce((sum, count) => sum + count, 0);

export function showJobs(model, choose) {
  const jobs = [...model.jobs.values()];
  $("jobs-empty").hidden = jobs.length > 0;
  text($("jobs-count"), jobs.length ? `${number(jobs.length)} newest` : "");
  keyed($("jobs"), jobs, (job) => job.job_id, (job) => {
    const button = el("button", { type: "button", class: "name", onclick: () => choose(job.job_id) },
      el("span", { class: "title" }), el("span", { class: "state" }), el("span", { class: "meta" }));
    return el("li", {}, button, el("div", { class: "bar", role: "img" }, ...PARTS.map((part) => el("i", { class: part }))));
  }, (item, job) => {
    const [button, bar] = item.children;
    const [title, state, meta] = button.children;
    const all = total(job) || 1;
    text(title, job.name);
    title.title = job.name;
    text(state, job.state.toLowerCase());
    state.dataset.state = job.state;
    const took = job.finished_at ? `, took ${duration(Date.parse(job.finished_at) - Date.parse(job.created_at))}` : "";
    text(meta, `${number(job.tasks.COMPLETED)} of ${number(all)} tasks · ${when(Date.parse(job.created_at))}${took}`);
    const current = job.job_id === model.selected;
    item.toggleAttribute("data-current", current);
    if (current) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    PARTS.forEach((part, at) => { bar.children[at].style.width = `${(100 * job.tasks[part]) / all}%`; });
    bar.setAttribute("aria-label", PARTS.filter((part) => job.tasks[part]).map((part) => `${job.tasks[part]} ${part.toLowerCase()}`).join(", ") || "nothing done yet");
  });
}

export function showNodes(model) {
  const running = new Map(), lost = new Map();
  for (const lease of model.leases.values()) {
    if (lease.outcome === "live") running.set(lease.node, (running.get(lease.node) ?? 0) + 1);
    if (lease.outcome === "lost") lost.set(lease.node, (lost.get(lease.node) ?? 0) + 1);
  }
  const alive = model.nodes.filter((node) => node.status === "live").length;
  const order = [...model.nodes].sort((a, b) => (a.status === "live" ? 0 : 1) - (b.status === "live" ? 0 : 1) || a.node_id.localeCompare(b.node_id)).slice(0, 500);
  $("nodes-empty").hidden = order.length > 0;
  text($("nodes-count"), order.length ? `${number(alive)} of ${number(model.nodes.length)} alive` : "");
  keyed($("nodes"), order, (node) => node.node_id, (node) => el("tr", {},
    el("th", { scope: "row", title: node.node_id }, node.node_id), el("td", {}, el("span", { class: "dotted" })), el("td"), el("td", { class: "number" }), el("td", { class: "number" })),
  (row, node) => {
    const [, state, heard, held, gone] = row.children;
    const tags = [node.connected === false && node.status === "live" && "no session", node.duty !== "active" && node.duty].filter(Boolean);
    text(state.firstChild, [node.status === "live" ? "alive" : node.status, ...tags].join(", "));
    state.firstChild.dataset.tone = node.status === "live" ? (tags.length ? "warn" : "good") : "bad";
    text(heard, node.idle_s < 1.5 ? "just now" : `${duration(Math.round(node.idle_s) * 1000)} ago`);
    const slots = node.capabilities?.slots ? ` of ${node.capabilities.slots}` : "";
    text(held, `${node.running ?? running.get(node.node_id) ?? 0}${slots}`);
    text(gone, String(lost.get(node.node_id) ?? 0));
  });
}

export function showLeases(model, choose) {
  const newest = [...model.leases.values()].slice(-LEASES_SHOWN).reverse();
  keyed($("leases"), newest, (lease) => lease.id, (lease) => {
    const button = el("button", { type: "button", class: "link", onclick: () => choose(lease.job, indexOf(lease.task)) });
    return el("tr", {}, el("td", {}, button), el("td", {}, String(lease.attempt ?? "?")), el("td", {}, lease.node), el("td", {}, when(lease.start)), el("td"), el("td", {}, el("span", { class: "state" })));
  }, (row, lease) => {
    const job = model.jobs.get(lease.job)?.name ?? lease.job;
    text(row.children[0].firstChild, `${indexOf(lease.task)} of ${job}`);
    text(row.children[4], duration((lease.end ?? model.now()) - lease.start));
    const state = row.children[5].firstChild;
    text(state, OUTCOMES[lease.outcome]);
    state.dataset.state = { completed: "COMPLETED", failed: "FAILED", live: "LEASED", lost: "lost" }[lease.outcome] ?? "";
  });
}

export function showEvents(model, filter) {
  const shown = [];
  for (let at = model.events.length - 1; at >= 0 && shown.length < EVENTS_SHOWN; at -= 1) {
    const event = model.events[at];
    if (filter === "job" && event.job_id !== model.selected) continue;
    const [words, tone] = describe(event, model.jobs.get(event.job_id)?.name ?? event.job_id);
    if (filter === "trouble" && tone !== "bad" && tone !== "warn") continue;
    shown.push({ event, words, tone });
  }
  keyed($("events"), shown, ({ event }) => event.id, ({ event, words, tone }) => el("li", { "data-tone": tone },
    el("time", { datetime: event.at, title: event.at }, when(event.ms).slice(-8)), el("span", { class: "what" }, words)),
  (row, { words }) => text(row.lastChild, words));
}
