// Rates over the last minute, from sums that only grow.

import { h, rate, svg } from "./dom.js";

const WINDOW_S = 60;
const SMOOTH_S = 1;
const WIDTH = 300;
const HEIGHT = 44;

export class Speed {
  constructor() {
    this.samples = []; // {time, sums}
    this.points = []; // {time, value}
    this.line = svg("path", { class: "line" });
    this.area = svg("path", { class: "area" });
    this.now = h("strong", {}, "0");
    const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.area, this.line);
    this.most = h("span", { class: "note" });
    this.element = h("div", { class: "speed" },
      h("div", {}, this.now, h("span", {}, " tokens a second")), chart, this.most);
  }

  add(sums) {
    const time = performance.now() / 1000;
    if (this.samples.length && (sums.steps ?? 0) < (this.samples.at(-1).sums.steps ?? 0)) this.samples = []; // restarted
    this.samples.push({ time, sums });
    while (this.samples.length > 2 && this.samples[1].time < time - SMOOTH_S) this.samples.shift();
    const first = this.samples[0];
    const gained = (sums.generated_tokens ?? 0) - (first.sums.generated_tokens ?? 0);
    const value = time > first.time ? gained / Math.max(0.5, time - first.time) : 0;
    this.points.push({ time, value });
    while (this.points[0].time < time - WINDOW_S) this.points.shift();
    this.now.textContent = rate(value);
    this.draw(time);
  }

  draw(time) {
    const most = Math.max(1, ...this.points.map((point) => point.value));
    const at = ({ time: when, value }) =>
      `${(WIDTH * (1 - (time - when) / WINDOW_S)).toFixed(1)},${((HEIGHT - 2) * (1 - value / most) + 1).toFixed(1)}`;
    const line = `M${this.points.map(at).join("L")}`;
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", `${line}L${WIDTH},${HEIGHT}L${at(this.points[0]).split(",")[0]},${HEIGHT}Z`);
    this.most.textContent = `last minute, at most ${rate(most)}`;
  }
}
