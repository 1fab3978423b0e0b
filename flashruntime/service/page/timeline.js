// Leases on a time line, a lane for each node, further lanes where it holds several at once.

import { $, clock, color, duration, sized, tip } from "./dom.js";
import { indexOf } from "./model.js";
import { OUTCOMES } from "./words.js";

const LANE = 18, GAP = 8, AXIS = 24, BAR = 12, MAX_NODES = 200, MAX_LANES = 12;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

export class Timeline {
  constructor(model, choose) {
    this.model = model;
    this.window = 300;
    this.hits = [];
    this.canvas = $("line");
    this.scroller = $("line-scroll");
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    $("line-window").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      this.window = Number(button.dataset.seconds);
      for (const other of $("line-window").children) other.setAttribute("aria-pressed", String(other === button));
      this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const lease = this.#at(event);
      this.canvas.style.cursor = lease ? "pointer" : "default";
      tip(lease ? this.words(lease) : "", event.clientX, event.clientY);
    });
    this.canvas.addEventListener("pointerleave", () => tip(""));
    this.canvas.addEventListener("click", (event) => {
      const lease = this.#at(event);
      if (lease) choose(lease.job, indexOf(lease.task));
    });
  }

  words(lease) {
    const job = this.model.jobs.get(lease.job)?.name ?? lease.job;
    const held = duration((lease.end ?? this.model.now()) - lease.start);
    const lines = [`Task ${indexOf(lease.task)} of ${job}, attempt ${lease.attempt ?? "?"}`, `${lease.node} · ${held} · ${OUTCOMES[lease.outcome]}`];
    if (lease.why) lines.push(lease.why);
    if (lease.failure) lines.push(lease.failure.replaceAll("_", " "));
    return lines.join("\n");
  }

  shown() {
    const until = this.model.now();
    const leases = [...this.model.leases.values()];
    let from = until - this.window * 1000;
    if (this.window === 0) from = Math.min(until - 10000, ...leases.slice(0, 1).map((lease) => lease.start));
    return { from, until, leases: leases.filter((lease) => (lease.end ?? until) >= from) };
  }

  draw() {
    const { from, until, leases } = this.shown();
    const nodes = new Map();
    for (const lease of leases) {
      if (!nodes.has(lease.node)) nodes.set(lease.node, []);
      nodes.get(lease.node).push(lease);
    }
    const names = [...nodes.keys()].sort().slice(0, MAX_NODES);
    const lanes = new Map(names.map((name) => [name, laid(nodes.get(name), until)]));
    const height = AXIS + Math.max(LANE * 2, names.reduce((sum, name) => sum + lanes.get(name).length * LANE + GAP, 0));
    const width = Math.max(200, this.scroller.clientWidth - 28);
    const label = Math.min(150, width * 0.26);
    const pen = sized(this.canvas, width, height);
    const x = (ms) => label + ((ms - from) / (until - from)) * (width - label - 4);
    this.#axis(pen, { from, until, x, label, width, height });
    this.hits = [];
    let y = AXIS;
    for (const name of names) {
      this.#name(pen, name, y, label);
      for (const lane of lanes.get(name)) {
        for (const lease of lane) this.#bar(pen, lease, y, x, label, until);
        y += LANE;
      }
      y += GAP;
      pen.fillStyle = color("soft");
      pen.fillRect(0, y - GAP / 2 - 1, width, 1);
    }
    if (!names.length) {
      pen.fillStyle = color("muted");
      pen.fillText("No lease in this time", label + 8, AXIS + 20);
    }
    this.#describe(names, leases);
  }

  #axis(pen, { from, until, x, label, width, height }) {
    pen.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    const room = Math.max(2, Math.floor((width - label) / 110));
    const step = STEPS.find((seconds) => (until - from) / 1000 / seconds <= room) ?? STEPS.at(-1);
    for (let at = Math.ceil(from / (step * 1000)) * step * 1000; at < until; at += step * 1000) {
      pen.fillStyle = color("edge");
      pen.fillRect(x(at), AXIS - 6, 1, height - AXIS + 6);
      pen.fillStyle = color("muted");
      const words = step < 60 ? clock(at) : clock(at).slice(0, 5);
      if (x(at) + 50 < width) pen.fillText(words, x(at) + 4, 9);
    }
    for (const at of this.model.starts.filter((ms) => ms >= from)) {
      pen.fillStyle = color("muted");
      pen.fillRect(x(at) - 1, AXIS - 6, 2, height - AXIS + 6);
    }
  }

  #name(pen, name, y, label) {
    pen.fillStyle = color("text");
    let words = name;
    while (words.length > 4 && pen.measureText(words).width > label - 12) words = `${words.slice(0, -2).trimEnd()}…`.replace("……", "…");
    pen.fillText(words, 0, y + LANE / 2);
  }

  #bar(pen, lease, y, x, label, until) {
    const begin = Math.max(label, x(lease.start));
    const end = Math.max(begin + 2, x(lease.end ?? until));
    const top = y + (LANE - BAR) / 2;
    pen.fillStyle = color(lease.outcome);
    pen.beginPath();
    pen.roundRect(begin, top, end - begin > 4 ? end - begin - 1 : end - begin, BAR, Math.min(3, (end - begin) / 2));
    pen.fill();
    for (const mark of lease.marks) {
      const at = x(mark.ms);
      if (at < label) continue;
      if (mark.kind === "checkpoint") diamond(pen, at, y + LANE / 2);
      else if (mark.kind !== "failed") cross(pen, at, y + LANE / 2);
    }
    this.hits.push({ begin: begin - 2, end: end + 2, y, lease });
  }

  #describe(names, leases) {
    const counts = {};
    for (const lease of leases) counts[lease.outcome] = (counts[lease.outcome] ?? 0) + 1;
    const parts = Object.entries(counts).map(([outcome, count]) => `${count} ${OUTCOMES[outcome]}`);
    const words = leases.length ? `${leases.length} leases of ${names.length} nodes: ${parts.join(", ")}` : "No lease in the time shown";
    if (this.canvas.getAttribute("aria-label") !== words) this.canvas.setAttribute("aria-label", words);
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    return this.hits.findLast((hit) => px >= hit.begin && px <= hit.end && py >= hit.y && py < hit.y + LANE)?.lease ?? null;
  }
}

// Puts leases that overlap into lanes of their own.
function laid(leases, until) {
  const lanes = [];
  const ends = [];
  for (const lease of leases.toSorted((a, b) => a.start - b.start)) {
    let at = ends.findIndex((end) => end <= lease.start);
    if (at < 0) at = Math.min(lanes.length, MAX_LANES - 1);
    (lanes[at] ??= []).push(lease);
    ends[at] = Math.max(ends[at] ?? 0, lease.end ?? until);
  }
  return lanes;
}

function cross(pen, x, y) {
  pen.lineCap = "round";
  for (const [stroke, width] of [["card", 5], ["text", 2]]) {
    pen.strokeStyle = color(stroke);
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(x - 4, y - 4);
    pen.lineTo(x + 4, y + 4);
    pen.moveTo(x + 4, y - 4);
    pen.lineTo(x - 4, y + 4);
    pen.stroke();
  }
}

function diamond(pen, x, y) {
  pen.fillStyle = color("card");
  pen.strokeStyle = color("text");
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, y - 4);
  pen.lineTo(x + 4, y);
  pen.lineTo(x, y + 4);
  pen.lineTo(x - 4, y);
  pen.closePath();
  pen.fill();
  pen.stroke();
}
