// The KV pool as a grid: one square a block. Pointing at a block or a request shows which blocks belong together.

import { h } from "./dom.js";

const HEIGHT = 230; // pixels, at most
const SIZES = [22, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2];
const NUM_COLORS = 6; // of requests
const HINT = "A dot marks a change. Point at a block to see what it holds.";
const NAMES = {
  f: "free", c: "cached: kept until the memory is needed", s: "shared by several requests", p: "pinned",
  l: "arriving from another tier", h: "in use", o: "one of your requests", x: "another key's request",
};

// The CSS colour of a state; letters are requests.
export function colorOf(state) {
  return /[A-Z]/.test(state) ? `--own-${(state.charCodeAt(0) - 65) % NUM_COLORS}` : `--block-${state}`;
}

export class Grid {
  constructor() {
    this.canvas = h("canvas", { class: "grid", role: "img" });
    this.tip = h("p", { class: "tip" }, HINT);
    this.probe = h("i", { hidden: "" });
    this.element = h("div", {}, this.canvas, this.tip, this.probe);
    this.cells = "";
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.highlight(null));
    new ResizeObserver(() => this.draw()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    addEventListener("themechange", () => this.draw());
  }

  show(engine) {
    if (engine.cells === this.cells && engine.cells === this.before && this.perCell === engine.blocks_a_cell) return;
    this.before = this.cells.length === engine.cells.length ? this.cells : "";
    this.cells = engine.cells;
    this.perCell = engine.blocks_a_cell;
    if (this.letter && !this.cells.includes(this.letter)) this.highlight(null);
    this.draw();
  }

  // Emphasize the blocks of a request's letter, or of none.
  highlight(letter, text = HINT) {
    this.tip.textContent = text;
    if (letter === this.letter) return;
    this.letter = letter;
    this.draw();
  }

  layOut() {
    const width = this.element.clientWidth;
    for (const size of SIZES) {
      const columns = Math.max(1, Math.floor(width / size));
      const rows = Math.ceil(this.cells.length / columns);
      if (rows * size <= HEIGHT || size === SIZES.at(-1)) return { size: width / columns, columns, rows };
    }
    return null;
  }

  draw() {
    if (!this.element.clientWidth) return;
    const { size, columns, rows } = this.layOut();
    const scale = devicePixelRatio || 1;
    this.size = size;
    this.columns = columns;
    this.canvas.width = columns * size * scale;
    this.canvas.height = Math.ceil(rows * size) * scale;
    this.canvas.style.width = `${columns * size}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const colors = {};
    const gap = size > 5 ? 2 : size > 3 ? 1 : 0;
    const edge = Math.max(1, Math.round(size - gap));
    for (let at = 0; at < this.cells.length; at += 1) {
      const state = this.cells[at];
      const color = (colors[state] ??= this.resolve(colorOf(state)));
      const x = Math.round((at % columns) * size);
      const y = Math.round(Math.floor(at / columns) * size);
      context.globalAlpha = this.letter && state !== this.letter ? 0.25 : 1;
      context.fillStyle = color;
      context.beginPath();
      context.roundRect(x, y, edge, edge, size > 8 ? 2.5 : 0);
      context.fill();
      if (size > 6 && this.before && this.before[at] !== state && state !== "f") { // changed just now
        context.fillStyle = "rgb(255 255 255 / 55%)";
        context.fillRect(x + edge * 0.3, y + edge * 0.3, edge * 0.4, edge * 0.4);
      }
    }
  }

  // The value of a colour in the present theme, which a canvas cannot look up.
  resolve(name) {
    this.probe.style.color = `var(${name})`;
    return getComputedStyle(this.probe).color;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size);
    const at = Math.floor((event.clientY - box.top) / this.size) * this.columns + column;
    const state = this.cells[at];
    if (!state || column >= this.columns) return this.highlight(null);
    const isRequest = /[A-Z]/.test(state);
    const name = isRequest ? `request ${state}` : NAMES[state];
    return this.highlight(isRequest ? state : null, `Block ${at * this.perCell}: ${name}.`);
  }
}
