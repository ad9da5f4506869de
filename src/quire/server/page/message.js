// One message: text, reasoning, tool calls, sources, figures, and what can be done with it.

import { copy, count, h, rate, seconds } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { ribbon } from "./ribbon.js";

export class MessageView {
  constructor(node, chat) {
    this.node = node;
    this.chat = chat;
    this.text = h("div", { class: "text" });
    this.reasoning = h("div", { class: "text" });
    this.thought = h("details", { class: "fold" }, h("summary", {}, "Reasoning"), this.reasoning);
    this.calls = h("div");
    this.more = h("div");
    this.tools = h("div", { class: "tools" });
    const parts = node.role === "user" ? [this.text, this.tools] : [this.thought, this.text, this.calls, this.more, this.tools];
    this.element = h("article", { class: `message ${node.role}`, "aria-label": node.role }, ...parts);
  }

  update(branches) {
    const { node } = this;
    this.element.classList.toggle("running", Boolean(node.isRunning));
    if (node.role === "user") this.text.textContent = node.content;
    else renderMarkdown(this.text, node.content);
    this.thought.hidden = !node.reasoning;
    if (node.reasoning) renderMarkdown(this.reasoning, node.reasoning);
    this.calls.replaceChildren(...(node.calls ?? []).map(showCall));
    if (node.isRunning) return;
    this.more.replaceChildren(...[showError(node), showSources(node), ribbon(node)].filter(Boolean));
    const [shown, others] = [[...this.figures(), ...this.branches(branches)], this.actions()];
    this.tools.replaceChildren(...node.role === "user" ? [...others, ...shown] : [...shown, ...others]);
  }

  figures() {
    const { node } = this;
    if (node.role === "user") return [];
    const tokens = node.usage?.completion_tokens;
    const shown = [];
    if (tokens > 1 && node.last > node.ttft) {
      shown.push(["speed", `${rate((tokens - 1) / (node.last - node.ttft))} tok/s`, "Generated tokens a second"]);
    }
    if (node.ttft) shown.push(["ttft", `TTFT ${seconds(node.ttft)}`, "Time to first token: from sending to the first word"]);
    if (tokens) shown.push(["tokens", `${count(tokens)} tokens`, "Length of the answer"]);
    if (node.stopped) shown.push(["stopped", "stopped", "You stopped this answer"]);
    if (node.reason === "length") shown.push(["cut", "cut off", "The answer reached max tokens"]);
    if (node.model) shown.push(["by", node.model, node.why ?? "The model that answered"]);
    return shown.map(([kind, text, title]) => h("span", { class: `figure ${kind}`, title }, text));
  }

  branches(branches) {
    if (branches.length < 2) return [];
    const at = branches.indexOf(this.node);
    const step = (to, text, label) => h("button", {
      class: "quiet", disabled: branches[to] ? null : "", "aria-label": label, click: () => this.chat.choose(branches[to]),
    }, text);
    return [h("span", { class: "branches" },
      step(at - 1, "‹", "Previous version"), `${at + 1} of ${branches.length}`, step(at + 1, "›", "Next version"))];
  }

  actions() {
    const action = (text, act) => h("button", { class: "quiet", click: act }, text);
    const copying = action("Copy", () => copy(this.node.content));
    if (this.node.role === "user") return [action("Edit", () => this.edit()), copying];
    return [action("Again", () => this.chat.regenerate(this.node)), copying];
  }

  // Edit a message of the user in place; sending it makes a branch.
  edit() {
    const area = h("textarea", { rows: Math.min(12, this.node.content.split("\n").length + 1), "aria-label": "Edit" });
    area.value = this.node.content;
    const end = () => { this.text.replaceChildren(this.node.content); };
    const send = () => { end(); if (area.value.trim()) this.chat.say(this.node.parent, area.value.trim()); };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") end();
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
    });
    const buttons = h("div", { class: "row end" },
      h("button", { class: "quiet", click: end }, "Cancel"), h("button", { class: "primary", click: send }, "Send"));
    this.text.replaceChildren(area, buttons);
    area.focus();
  }
}

function showCall({ name, arguments: given }) {
  let text = given;
  try { text = JSON.stringify(JSON.parse(given), null, 2); } catch { /* not complete yet */ }
  return h("details", { class: "fold" }, h("summary", {}, "Calls ", h("code", {}, name)), h("pre", {}, text));
}

function showError(node) {
  return node.error ? h("p", { class: "error", role: "alert" }, node.error) : null;
}

function showSources(node) {
  if (!node.sources?.length) return null;
  const items = node.sources.map((source) => h("li", {},
    h("strong", {}, source.document), source.page ? ` page ${source.page}` : "", ` · ${source.score.toFixed(2)}`,
    h("p", { class: "quote" }, source.text)));
  return h("details", { class: "fold sources" }, h("summary", {}, node.sources.length === 1 ? "1 source" : `${node.sources.length} sources`), h("ol", {}, ...items));
}
