// The prompt as a ribbon of blocks, coloured by the place where its keys and values came from.

import { count, h, seconds } from "./dom.js";

const SOURCES = {
  device: "in memory",
  host: "in swap space",
  disk: "from disk",
  process: "from another process",
  computed: "computed",
};

const SHORTEST_S = 0.0001; // that is worth a word

export function ribbon(node) {
  const parts = node.origin?.ribbon ?? fromUsage(node.usage);
  const total = parts.reduce((sum, part) => sum + part.tokens, 0);
  if (!total) return null;
  const bar = h("div", { class: "ribbon", role: "img", "aria-label": describe(parts) }, ...parts.map((part) => {
    const title = `${count(part.tokens)} tokens ${SOURCES[part.source] ?? part.source}`;
    const piece = h("span", { class: `piece ${part.source}`, "data-source": part.source, "data-tokens": part.tokens, title });
    piece.style.flexGrow = part.tokens;
    piece.style.setProperty("--blocks", Math.max(1, part.tokens / (node.blockSize ?? 16)));
    return piece;
  }));
  const broken = breakOf(node.origin);
  const mark = broken && h("i", { class: "break", title: "From here it differs from an earlier prompt" });
  if (mark) mark.style.left = `${100 * broken.token / total}%`;
  const missed = node.origin?.missed_s;
  const legend = Object.entries(sums(parts)).map(([source, tokens]) => h("span", { class: "key" },
    h("i", { class: `piece ${source}` }), `${count(tokens)} ${SOURCES[source] ?? source}${
      source === "computed" && missed >= SHORTEST_S ? ` in about ${seconds(missed)}` : ""}`));
  return h("div", { class: "origin" },
    h("div", { class: "legend" }, h("span", {}, `Prompt, ${count(total)} tokens:`), ...legend), h("div", { class: "marked" }, bar, mark),
    broken && showBreak(broken));
}

function fromUsage(usage) {
  if (!usage) return [];
  const details = usage.prompt_tokens_details ?? {};
  const found = details.cached_tokens_by_tier ?? { device: details.cached_tokens ?? 0 };
  const parts = Object.entries(found).map(([source, tokens]) => ({ source, tokens }));
  const sum = parts.reduce((all, part) => all + part.tokens, 0);
  return [...parts, { source: "computed", tokens: usage.prompt_tokens - sum }].filter((part) => part.tokens > 0);
}

function sums(parts) {
  const found = {};
  for (const { source, tokens } of parts) found[source] = (found[source] ?? 0) + tokens;
  return found;
}

function describe(parts) {
  return Object.entries(sums(parts)).map(([source, tokens]) => `${tokens} tokens ${SOURCES[source] ?? source}`).join(", ");
}

// The place where the prompt left the longest one that this key sent before; null if it had to be computed anyway.
const breakOf = (origin) => (origin?.divergence && origin.divergence.cause !== "first" ? origin.divergence : null);

function showBreak({ explanation, before, after }) {
  const text = `Why it was read again: ${explanation}`;
  if (before === after) return h("p", { class: "fold" }, text);
  return h("details", { class: "fold" }, h("summary", {}, text),
    h("dl", { class: "diff" },
      h("dt", {}, "before"), h("dd", { class: "gone" }, before.trim()),
      h("dt", {}, "now"), h("dd", { class: "come" }, after.trim())));
}
