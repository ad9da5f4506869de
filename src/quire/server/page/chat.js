// The conversation: sending, streaming, stopping, editing, branches.

import { attach } from "./attach.js";
import { ApiError, call, events, getJson } from "./api.js";
import { $, h } from "./dom.js";
import { MessageView } from "./message.js";
import { add, branch, siblings } from "./store.js";

const NEAR_END = 60; // pixels: closer to the end than that, the view follows the answer

export class Chat {
  constructor(store, { chooseModel, onAnswered }) {
    this.store = store;
    this.chooseModel = chooseModel;
    this.onAnswered = onAnswered;
    this.running = null; // AbortController of the answer that streams
    this.views = new Map();
    this.open(store.all[0] ?? store.create());
    $("composer").addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
    $("stop").addEventListener("click", () => this.stop());
    $("collection").addEventListener("change", () => this.search($("collection").value));
    $("attach").addEventListener("click", () => $("attach-files").click());
    $("attach-files").addEventListener("change", () => this.attach());
    $("question").addEventListener("keydown", (event) => this.handleKey(event));
    $("question").addEventListener("input", () => fitHeight($("question")));
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.stop(); });
  }

  open(conversation) {
    this.stop();
    this.conversation = conversation;
    this.show();
    this.showCollection();
    this.scrollToEnd();
  }

  // Search in a collection before each answer; "" for none.
  search(collection) {
    this.conversation.collection = collection;
    this.store.save();
    this.showCollection();
  }

  // Offer the server's collections.
  setCollections(names) {
    this.collections = names;
    this.showCollection();
  }

  showCollection(note = "") {
    const { collection = "", files = [] } = this.conversation;
    const names = new Set([...this.collections ?? [], ...(collection ? [collection] : [])]);
    $("collection").replaceChildren(h("option", { value: "" }, "no documents"), ...[...names].map((name) =>
      h("option", { value: name }, name)));
    $("collection").value = collection;
    $("collection-field").hidden = !names.size;
    const text = note || (collection && `Questions search in ${files.length ? files.join(", ") : collection}.`);
    $("attached").textContent = text;
    $("attached").hidden = !text;
  }

  async attach() {
    const { conversation } = this;
    const files = [...$("attach-files").files];
    $("attach-files").value = "";
    if (!files.length) return;
    this.showCollection(`Reading ${files.map((file) => file.name).join(", ")} …`);
    let failed = [];
    try {
      this.attaching = attach(conversation, files);
      const outcomes = await this.attaching;
      failed = outcomes.filter((each) => each.error).map((each) => `${each.name}: ${each.error.message}`);
      const added = outcomes.filter((each) => !each.error).map((each) => each.name);
      conversation.files = [...new Set([...conversation.files ?? [], ...added])];
      this.store.save();
    } catch (error) {
      failed = [error.message];
    }
    if (this.conversation === conversation) this.showCollection(failed.join(" · "));
  }

  // Show the chosen branch. Messages that stay keep their elements.
  show() {
    const views = branch(this.conversation).map((node) => this.view(node));
    this.views = new Map(views.map((view) => [view.node.id, view]));
    $("messages").replaceChildren(...(views.length ? views.map((view) => view.element) : [welcome()]));
    this.onChange?.();
  }

  // Return a message's view. Of an imported message with odd fields only the text is kept.
  view(node) {
    const { conversation } = this;
    try {
      const view = this.views.get(node.id) ?? new MessageView(node, this);
      view.update(siblings(conversation, node));
      return view;
    } catch (error) {
      const { id, parent, role, content, ...others } = node;
      if (!Object.keys(others).length) throw error;
      conversation.nodes[id] = { id, parent, role, content };
      this.views.delete(id);
      return this.view(conversation.nodes[id]);
    }
  }

  handleKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.ask();
  }

  ask() {
    const text = $("question").value.trim();
    if (!text || this.running) return;
    $("question").value = "";
    fitHeight($("question"));
    const last = branch(this.conversation).at(-1);
    this.say(last?.id ?? null, text);
  }

  // Add a message of the user and have it answered.
  say(parent, text) {
    if (!Object.keys(this.conversation.nodes).length) this.conversation.title = text.slice(0, 60);
    this.answer(add(this.conversation, parent, { role: "user", content: text }));
  }

  regenerate(node) {
    this.answer(this.conversation.nodes[node.parent]);
  }

  choose(node) {
    this.conversation.chosen[node.parent ?? ""] = node.id;
    this.store.save();
    this.show();
  }

  stop() {
    this.running?.abort();
  }

  async answer(question) {
    this.stop();
    const { conversation } = this;
    await this.attaching?.catch(() => {});
    const messages = [];
    for (let at = question; at; at = conversation.nodes[at.parent]) {
      messages.unshift({ role: at.role, content: at.content });
    }
    const node = add(conversation, question.id, { role: "assistant", content: "", model: this.chooseModel() });
    node.isRunning = true;
    node.blockSize = this.blockSize;
    const running = new AbortController();
    this.setRunning(running);
    this.show();
    this.scrollToEnd();
    try {
      await this.stream(node, this.body(node.model, messages), running.signal);
    } catch (error) {
      if (error.name === "AbortError") node.stopped = true;
      else node.error = error instanceof ApiError ? error.message : "The connection to the server was lost.";
    }
    delete node.isRunning;
    this.store.save();
    if (this.running === running) this.setRunning(null);
    this.refresh(node);
    this.onAnswered(node);
    await this.explain(node);
  }

  body(model, messages) {
    const system = $("system").value.trim();
    const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));
    const { collection } = this.conversation;
    return {
      model,
      messages: system ? [{ role: "system", content: system }, ...messages] : messages,
      temperature: number("temperature"),
      top_p: number("top-p"),
      max_tokens: number("max-tokens"),
      retrieval: collection ? { collection, top_k: 3 } : undefined,
      stream: true,
      stream_options: { include_usage: true },
    };
  }

  async stream(node, body, signal) {
    const began = performance.now();
    const since = () => (performance.now() - began) / 1000;
    const response = await call("v1/chat/completions", { body, signal });
    for await (const data of events(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(500, chunk.error.message);
      this.read(node, chunk, since());
      this.refresh(node);
    }
    throw new Error("the stream ended early");
  }

  read(node, chunk, time) {
    node.request = chunk.id ?? node.request;
    node.model = chunk.model ?? node.model;
    if (chunk.routing) node.why = chunk.routing.why;
    if (chunk.retrieval) node.sources = chunk.retrieval.sources;
    if (chunk.usage) node.usage = chunk.usage;
    for (const { delta = {}, finish_reason: reason } of chunk.choices ?? []) {
      const thought = delta.reasoning_content ?? "";
      if (delta.content || thought || delta.tool_calls) {
        node.ttft ??= time;
        node.last = time;
      }
      node.content += delta.content ?? "";
      if (thought) node.reasoning = (node.reasoning ?? "") + thought;
      for (const call of delta.tool_calls ?? []) {
        node.calls ??= [];
        const known = (node.calls[call.index] ??= { name: "", arguments: "" });
        known.name += call.function?.name ?? "";
        known.arguments += call.function?.arguments ?? "";
      }
      if (reason) node.reason = reason;
    }
  }

  // Ask where the prompt's tokens came from.
  async explain(node) {
    if (!node.request) return;
    try {
      node.origin = await getJson(`v1/requests/${encodeURIComponent(node.request)}`);
    } catch {
      return; // a server that keeps no requests, or has dropped this one
    }
    this.store.save();
    this.refresh(node);
  }

  // Draw a message again with the next frame.
  refresh(node) {
    this.changed ??= new Set();
    if (!this.changed.size) requestAnimationFrame(() => this.draw());
    this.changed.add(node);
  }

  draw() {
    const box = $("messages");
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END;
    for (const node of this.changed) this.views.get(node.id)?.update(siblings(this.conversation, node));
    this.changed.clear();
    if (isAtEnd) this.scrollToEnd();
  }

  scrollToEnd() {
    $("messages").scrollTop = $("messages").scrollHeight;
  }

  setRunning(running) {
    this.running = running;
    $("send").hidden = Boolean(running);
    $("stop").hidden = !running;
    $("messages").ariaBusy = String(Boolean(running)); // readers wait for the whole answer
  }
}

function welcome() {
  return h("div", { class: "welcome" }, h("h2", {}, "Ask something, and watch the engine answer."),
    h("p", {}, "Each square of the engine's memory holds a piece of text that the model has read or written. Ask a second "
      + "question: its beginning is in memory, and the bar under the answer shows how little was read again."));
}

function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight, 240)}px`;
}
