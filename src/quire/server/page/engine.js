// The engine, live: a panel for each part, with a sentence that says what it is.

import { bytes, count, h, seconds, update } from "./dom.js";
import { colorOf, Grid } from "./grid.js";
import { Speed } from "./speed.js";

const WAITS = {
  waiting: "waits for its turn", preempted: "gave its blocks up and waits", document: "waits for a document",
  grammar: "waits for its grammar", stage: "waits for a later stage of the model",
};
const WAYS = { load: "loaded", compute: "computed", both: "both", ahead: "loaded ahead" };
const MODES = { recompute: "computed", swap: "loaded", mixed: "both" };
const NAMES = { host: "swap space", disk: "disk" };
const NUM_DECISIONS = 6;

function panel(title, sentence, ...content) {
  return h("section", { class: "panel" }, h("h2", {}, title), h("p", { class: "sentence" }, sentence), ...content);
}

export class EngineView {
  constructor(element) {
    this.grid = new Grid();
    this.speed = new Speed();
    const part = () => h("div");
    Object.assign(this, {
      figures: part(), legend: part(), requests: part(), tiers: part(), decisions: part(), loading: part(), audits: part(),
      poolText: h("p", { class: "sentence" }),
    });
    this.loadPanel = panel("Loading", "A model can answer before all of it has arrived: it serves in stages.", this.loading);
    this.tierPanel = panel("Where known text is kept",
      "Known text can be loaded or computed again. Quire measures both, and takes the faster way.", this.tiers);
    this.decisionPanel = panel("Load or compute?",
      "The prediction for both ways, the way that was chosen, and the seconds that it took.", this.decisions);
    const pool = h("section", { class: "panel" }, h("h2", {}, "Memory: the KV cache"), this.poolText, this.grid.element, this.legend);
    this.details = h("div", { class: "panels", hidden: "" },
      panel("Requests", "All of them move together: each step of the engine adds a token to every answer.", this.requests),
      this.tierPanel, this.decisionPanel,
      panel("Checks", "While it is idle, the engine computes found blocks again and compares every bit.", this.audits));
    element.replaceChildren(this.loadPanel, h("section", { class: "panel" }, this.speed.element, this.figures), pool, this.details);
  }

  show({ models, model, recent, engine }) {
    const { load, ...chosen } = models.find((each) => each.name === model);
    this.showLoading(load, chosen);
    if (recent) {
      this.speed.add(recent.sums);
      this.showFigures(recent, engine);
      this.showAudits(recent.audits);
    }
    for (const each of [this.details, this.grid.element, this.legend]) each.hidden = !engine;
    if (!engine) {
      const reason = chosen.state === "ready" ? "This engine runs elsewhere and cannot be watched." : `The model is ${chosen.state}.`;
      this.poolText.textContent = reason;
      return;
    }
    this.showPool(engine);
    this.showRequests(engine, load?.num_stages > 1);
    this.showTiers(engine, recent);
    this.showDecisions(engine, recent);
  }

  showFigures({ ttft_s: ttft, itl_s: itl, sums }, engine) {
    const found = sums.prompt_tokens ? (sums.found_tokens ?? 0) / sums.prompt_tokens : null;
    const running = engine?.requests.filter((each) => each.state === "running").length ?? 0;
    const waiting = (engine?.requests.length ?? 0) - running + (engine?.num_unlisted ?? 0);
    const shown = [
      ["running", count(running), ""],
      ["waiting", count(waiting), ""],
      ["first token", seconds(ttft.p50), `95 %: ${seconds(ttft.p95)}`, "TTFT: half of the requests, and 95 % of them, waited less"],
      ["between tokens", seconds(itl.p50), `95 %: ${seconds(itl.p95)}`, "ITL: half of the gaps, and 95 % of them, are shorter"],
      ["prompt found", found === null ? "–" : `${Math.round(found * 100)} %`, "", "Share of prompt tokens that were known already"],
    ];
    update(this.figures, shown, () => h("dl", { class: "figures" }, ...shown.map(([name, value, more, title]) =>
      h("div", { title }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "more" }, more)))));
  }

  showPool(engine) {
    const { num_blocks: all, num_used: used, num_cached: cached, block_size: size, blocks_a_cell: per } = engine;
    const square = per > 1 ? `Each square stands for ${per} blocks.` : "Each square is a block.";
    this.poolText.textContent = `The model remembers text as keys and values, in blocks of ${size} tokens (${
      bytes(engine.block_bytes)}). ${square} A request takes blocks as its text grows. When it ends they stay, and text `
      + "that begins the same finds them again, until the memory is needed.";
    this.grid.show(engine);
    const own = [...engine.cells].filter((state) => /[A-Zo]/.test(state)).length * per;
    const others = (letter) => engine.cells.split(letter).length - 1;
    const rows = [
      ["o", "yours", own], ["x", "another key's", others("x") * per], ["s", "shared", others("s") * per],
      ["h", "in use", others("h") * per], ["l", "arriving", others("l") * per], ["p", "pinned", engine.num_pinned],
      ["c", "cached", cached], ["f", "free", all - used - cached],
    ].filter(([state, , number]) => number || "ocf".includes(state));
    update(this.legend, rows, () => h("div", { class: "legend" }, ...rows.map(([state, name, number]) => {
      const mark = h("i", { class: `block ${state}` });
      if (state !== "o") mark.style.background = `var(${colorOf(state)})`;
      return h("span", { class: "key" }, mark, `${count(number)} ${name}`);
    })));
    this.grid.canvas.setAttribute("aria-label", rows.map(([, name, number]) => `${number} blocks ${name}`).join(", "));
    this.grid.canvas.dataset.blocks = all;
  }

  showRequests({ requests, num_unlisted: unlisted, block_size: size }, hasStages) {
    const focused = document.activeElement?.dataset.letter; // the list is made anew
    update(this.requests, [requests, unlisted, hasStages], () => {
      if (!requests.length) return h("p", { class: "note" }, "None at the moment.");
      const more = unlisted ? h("p", { class: "note" }, `and ${count(unlisted)} more`) : "";
      return [h("ul", { class: "requests" }, ...requests.map((each) => this.request(each, size, hasStages))), more];
    });
    if (focused) this.requests.querySelector(`[data-letter="${focused}"]`)?.focus();
  }

  request(each, size, hasStages) {
    const doing = each.state === "running"
      ? each.own && each.num_computed_tokens < each.num_prompt_tokens ? "reads its prompt" : "writes" : WAITS[each.state] ?? each.state;
    const state = hasStages && each.own ? `${doing}, with stage ${each.stage} of the model` : doing;
    if (!each.own) {
      return h("li", {}, h("span", { class: "badge other" }, "?"), `another key's, ${state}, ${count(each.num_blocks)} blocks`);
    }
    const show = () => this.grid.highlight(each.letter, `Blocks of request ${each.letter}.`);
    const hide = () => this.grid.highlight(null);
    const { num_prompt_tokens: prompt, num_cached_tokens: cached, num_computed_tokens: computed, max_tokens: most } = each;
    const written = each.num_output_tokens;
    const piece = (kind, tokens) => {
      const element = h("span", { class: `piece ${kind}` });
      element.style.flexGrow = Math.max(0, tokens);
      return element;
    };
    const read = Math.min(computed, prompt);
    const bar = h("div", { class: "bar" }, piece("found", Math.min(cached, read)), piece("read", read - Math.min(cached, read)),
      piece("unread", prompt - read), piece("written", written),
      piece("room", Math.min(most - written, Math.max(size, prompt + written))));
    const key = (kind, text) => h("span", { class: "key" }, h("i", { class: kind }), text);
    const legend = h("div", { class: "legend" }, key("found", `${count(cached)} found`),
      key("read", `${count(Math.max(0, read - cached))} computed`), key("written", `${count(written)} written`),
      h("span", {}, `${count(each.num_blocks)} blocks`),
      each.num_preemptions ? h("span", {}, `preempted ${count(each.num_preemptions)}×`) : null);
    const badge = h("span", { class: "badge" }, each.letter);
    badge.style.background = `var(${colorOf(each.letter)})`;
    return h("li", { tabindex: 0, "data-letter": each.letter, pointerenter: show, pointerleave: hide, focus: show, blur: hide },
      badge, h("div", { class: "grow" }, h("div", {}, state), bar, legend));
  }

  showTiers(engine, recent) {
    const moved = recent?.moved_blocks ?? {};
    const rows = engine.tiers.map((tier) => [
      NAMES[tier.name],
      `${count(tier.num_blocks)}${tier.capacity ? ` of ${count(tier.capacity)}` : ""}`,
      bytes((moved[`${tier.name}.save`] ?? 0) * engine.block_bytes),
      bytes((moved[`${tier.name}.load`] ?? 0) * engine.block_bytes),
      tier.load_s ? `${bytes(engine.span_tokens / engine.block_size * engine.block_bytes / tier.load_s)}/s` : "–",
      count(tier.num_queued),
    ]);
    const loads = engine.tiers.filter((tier) => tier.load_s).map((tier) => `loaded from ${NAMES[tier.name]} in ${seconds(tier.load_s)}`);
    const costs = [...loads, engine.compute_s ? `computed in ${seconds(engine.compute_s)}` : ""].filter(Boolean).join(", ");
    this.tierPanel.hidden = !rows.length;
    update(this.tiers, [rows, costs], () => [
      table(["", "blocks", "written", "read", "bandwidth", "queue"], rows),
      costs ? h("p", { class: "note" }, `As measured here, ${count(engine.span_tokens)} tokens are ${costs}.`) : ""]);
  }

  showDecisions({ decisions, recoveries }, recent) {
    const ways = Object.entries(recent?.ways ?? {});
    const rows = [
      ...decisions.slice(0, NUM_DECISIONS).map(({ num_tokens: tokens, predicted, way, seconds: took }) =>
        ["prompt", tokens, predicted.load, predicted.compute, WAYS[way] ?? way, took]),
      ...recoveries.slice(0, NUM_DECISIONS).map(({ num_tokens: tokens, predicted, outcome, is_complete: isBack, seconds: took }) =>
        ["preempted", tokens, predicted.swap, predicted.recompute, MODES[outcome] ?? outcome, isBack ? took : null]),
    ];
    this.decisionPanel.hidden = !rows.length && !ways.length;
    update(this.decisions, [rows, ways], () => {
      const sum = ways.map(([way, number]) => `${count(number)} ${WAYS[way] ?? way}`).join(", ");
      const shown = rows.map(([what, tokens, load, compute, chosen, took]) =>
        [what, count(tokens), seconds(load), seconds(compute), chosen, seconds(took)]);
      return [rows.length ? table(["", "tokens", "load", "compute", "chosen", "took"], shown) : "",
        sum ? h("p", { class: "note" }, `Since the start, of prompts found outside memory: ${sum}.`) : ""];
    });
  }

  showAudits(audits) {
    update(this.audits, audits, () => {
      const equal = audits.equal ?? 0;
      const different = audits.different ?? 0;
      if (different) return h("p", { class: "error" }, `${count(different)} of ${count(equal + different)} checks failed; see the log.`);
      return h("p", { class: "note" }, equal ? `${count(equal)} checks, all equal.` : "None yet: there was nothing to check.");
    });
  }

  showLoading(load, { state, error }) {
    const isPartial = load && (state === "loading" || load.stage < load.num_stages || load.bytes_loaded < load.bytes_total);
    this.loadPanel.hidden = !isPartial && !error;
    if (this.loadPanel.hidden) return;
    update(this.loading, [load, state, error], () => {
      const share = load?.bytes_total ? load.bytes_loaded / load.bytes_total : 0;
      const done = h("span", { class: "piece written" });
      done.style.flexGrow = share;
      const rest = h("span", { class: "piece room" });
      rest.style.flexGrow = 1 - share;
      const marks = (load?.stage_bytes ?? []).map((end, at) => {
        const mark = h("i", { class: "mark", title: `stage ${at + 1}` });
        mark.style.left = `${100 * end / load.bytes_total}%`;
        return mark;
      });
      const text = [state, load?.phase, load?.num_stages > 1 && load.stage ? `stage ${load.stage} of ${load.num_stages} serves` : "",
        load?.bytes_total ? `${bytes(load.bytes_loaded)} of ${bytes(load.bytes_total)}` : "",
        load?.seconds_left ? `${seconds(load.seconds_left)} left` : "", error].filter(Boolean).join(" · ");
      return [h("div", { class: "bar marked" }, done, rest, ...marks), h("p", { class: "note" }, text)];
    });
  }
}

function table(head, rows) {
  const row = (cells, tag) => h("tr", {}, ...cells.map((cell) => h(tag, {}, cell)));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, row(head, "th")),
    h("tbody", {}, ...rows.map((cells) => row(cells, "td")))));
}
