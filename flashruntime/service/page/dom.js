// Elements, text and times. Text is only ever set as text.

export const $ = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

// Keeps the element of each key, so that focus and scroll position survive an update.
export function keyed(parent, items, keyOf, make, update) {
  const kept = parent.kept ?? (parent.kept = new Map());
  const seen = new Set();
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = kept.get(key);
    if (!node) kept.set(key, (node = make(item)));
    update(node, item);
    if (node === before) before = before.nextElementSibling;
    else parent.insertBefore(node, before);
    seen.add(key);
  }
  for (const [key, node] of kept) {
    if (seen.has(key)) continue;
    node.remove();
    kept.delete(key);
  }
}

export const number = (value) => Number(value ?? 0).toLocaleString("en");

export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function when(ms) {
  const date = new Date(ms);
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock(ms) : `${date.toLocaleDateString("en-CA")} ${clock(ms)}`;
}

// What a custom property of the style sheet is now, for drawing.
const probe = document.createElement("span");
let colors = new Map();
export function color(name) {
  if (!colors.has(name)) {
    if (!probe.isConnected) {
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(--${name})`;
    colors.set(name, getComputedStyle(probe).color);
  }
  return colors.get(name);
}
export const forgetColors = () => { colors = new Map(); };

// A canvas of this size in CSS pixels, sharp on dense screens.
export function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

export function tip(words, x, y) {
  const box = $("tip");
  box.hidden = !words;
  if (!words) return;
  text(box, words);
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - width - 6))}px`;
  box.style.top = `${y + height + 22 > innerHeight ? y - height - 10 : y + 16}px`;
}

// Calls at once, then at most every `ms`, the last call included.
export function atMostEvery(ms, call) {
  let timer = null, again = false;
  const run = () => {
    again = false;
    timer = setTimeout(() => { timer = null; if (again) run(); }, ms);
    call();
  };
  return () => { if (timer === null) run(); else again = true; };
}
