// The tasks of a job as squares: only what is in view is drawn, whatever their number.

import { $, color, el, keyed, number, sized, text, tip } from "./dom.js";
import { STATES } from "./model.js";

const NAMES = { P: "pending", W: "waiting", L: "live", C: "completed", F: "failed", X: "cancelled" };
const RARE = new Set(["W", "X"]);
const SIZES = [22, 18, 15, 12, 10, 8, 7];
const WANTED_HEIGHT = 300;

export class Grid {
  constructor(model, choose) {
    this.model = model;
    this.choose = choose;
    this.cursor = 0;
    this.only = null;
    this.pitch = SIZES[0];
    this.columns = 1;
    this.canvas = $("grid");
    this.scroller = $("grid-scroll");
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.render()).observe(this.scroller);
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.canvas.addEventListener("click", (event) => {
      const index = this.#at(event);
      if (index === null) return;
      this.cursor = index;
      this.render();
      this.choose(index, false);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const index = this.#at(event);
      tip(index === null ? "" : this.words(index), event.clientX, event.clientY);
    });
    this.canvas.addEventListener("pointerleave", () => tip(""));
  }

  words(index) {
    const attempts = this.model.attemptsOf(index);
    const tries = attempts === 0 ? "" : `, ${attempts === 9 ? "9 or more" : attempts} ${attempts === 1 ? "attempt" : "attempts"}`;
    return `Task ${index}: ${STATES[this.model.states[index]] ?? "unknown"}${tries}`;
  }

  reset() {
    this.cursor = 0;
    this.only = null;
    this.scroller.scrollTop = 0;
    this.render();
  }

  render() {
    const count = this.model.states.length;
    const width = Math.max(60, this.scroller.clientWidth - 28);
    this.pitch = SIZES.find((pitch) => Math.ceil(count / Math.floor(width / pitch)) * pitch <= WANTED_HEIGHT) ?? SIZES.at(-1);
    this.columns = Math.max(1, Math.floor(width / this.pitch));
    this.rows = Math.ceil(count / this.columns);
    this.cursor = Math.min(this.cursor, Math.max(0, count - 1));
    $("grid-space").style.height = `${Math.max(this.pitch, this.rows * this.pitch)}px`;
    this.#legend();
    this.canvas.setAttribute("aria-valuemax", String(Math.max(0, count - 1)));
    this.canvas.setAttribute("aria-valuenow", String(this.cursor));
    this.canvas.setAttribute("aria-valuetext", count ? this.words(this.cursor) : "no task");
    this.draw();
  }

  #legend() {
    const counts = this.model.counts();
    const shown = Object.keys(STATES).filter((state) => !RARE.has(state) || counts[state] > 0 || this.only === state);
    keyed($("legend"), shown, (state) => state, (state) => {
      const count = el("span", { class: "count" });
      const toggle = () => { this.only = this.only === state ? null : state; this.render(); };
      return el("button", { type: "button", onclick: toggle }, el("i", { class: state, "aria-hidden": "true" }), count);
    }, (button, state) => {
      const name = { W: "pausing", L: "running" }[state] ?? STATES[state];
      text(button.lastChild, `${number(counts[state])} ${name}`);
      button.setAttribute("aria-pressed", String(this.only === state));
      button.disabled = counts[state] === 0 && this.only !== state;
    });
  }

  draw() {
    const { pitch, columns, model } = this;
    const count = model.states.length;
    const height = Math.min(this.scroller.clientHeight || WANTED_HEIGHT, Math.max(pitch, this.rows * pitch));
    const pen = sized(this.canvas, columns * pitch, height);
    const top = this.scroller.scrollTop;
    const first = Math.floor(top / pitch);
    const last = Math.min(this.rows, Math.ceil((top + height) / pitch) + 1);
    const size = pitch - (pitch > 9 ? 3 : pitch > 6 ? 2 : 1);
    for (let row = first; row < last; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const index = row * columns + column;
        if (index >= count) break;
        const state = model.states[index];
        const [x, y] = [column * pitch, row * pitch - top];
        pen.globalAlpha = this.only && this.only !== state ? 0.16 : 1;
        pen.fillStyle = color(NAMES[state] ?? "pending");
        pen.fillRect(x, y, size, size);
        if (size >= 7 && model.attemptsOf(index) > 1) {
          pen.fillStyle = color("card");
          pen.fillRect(x + size - 4, y + 1, 3, 3);
        }
      }
    }
    pen.globalAlpha = 1;
    if (count && (document.activeElement === this.canvas || this.model.task === this.cursor)) {
      const [x, y] = [(this.cursor % columns) * pitch, Math.floor(this.cursor / columns) * pitch - top];
      pen.strokeStyle = color("text");
      pen.lineWidth = 2;
      pen.strokeRect(x - 0.5 + 0.5, y - 0.5 + 0.5, size + 0, size + 0);
    }
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.pitch);
    const row = Math.floor((event.clientY - box.top + this.scroller.scrollTop) / this.pitch);
    const index = row * this.columns + column;
    return column < 0 || column >= this.columns || index < 0 || index >= this.model.states.length ? null : index;
  }

  #key(event) {
    const count = this.model.states.length;
    const page = this.columns * Math.max(1, Math.floor(this.scroller.clientHeight / this.pitch) - 1);
    const moves = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns,
      PageDown: page, PageUp: -page, Home: -count, End: count,
    };
    if (event.key === "Enter" || event.key === " ") {
      if (count) this.choose(this.cursor, true);
    } else if (event.key in moves && !event.ctrlKey && !event.altKey && !event.metaKey) {
      this.cursor = Math.max(0, Math.min(count - 1, this.cursor + moves[event.key]));
      this.#reveal();
      this.render();
    } else return;
    event.preventDefault();
  }

  #reveal() {
    const y = Math.floor(this.cursor / this.columns) * this.pitch;
    const view = this.scroller.clientHeight;
    if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
    else if (y + this.pitch > this.scroller.scrollTop + view) this.scroller.scrollTop = y + this.pitch - view;
  }
}
