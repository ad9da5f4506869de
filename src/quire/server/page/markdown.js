// Markdown to DOM nodes. Texts of a model never become HTML: every node is made by hand, and links are http(s) only.

import { copy, h } from "./dom.js";

const MAX_DEPTH = 6;
const MAX_INLINE = 5000; // characters of a paragraph in which marks are looked for
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+/;
const TABLE = /^\s*\|?(\s*:?-+:?\s*\|)+(\s*:?-+:?\s*)?$/;
const INLINE = new RegExp([
  "(`+)(?<code>.+?)\\1(?!`)",
  "\\*\\*(?<bold>[^\\s*].*?)\\*\\*",
  "(?<![\\w*])\\*(?<em>[^\\s*][^*]*)\\*",
  "(?<![\\w_])_(?<em2>[^\\s_][^_]*)_(?!\\w)",
  "~~(?<del>.+?)~~",
  "\\[(?<label>[^\\]\\[]+)\\]\\((?<href>[^()\\s]+)\\)",
  "(?<url>https?://[^\\s<>()]*[^\\s<>().,;:!?'\"])",
].join("|"), "gs");
const CODE = new RegExp([
  "(?<comment>(?:#|//).*|/\\*[\\s\\S]*?\\*/)",
  "(?<string>\"(?:[^\"\\\\\\n]|\\\\.)*\"|'(?:[^'\\\\\\n]|\\\\.)*'|`[^`]*`)",
  "(?<number>\\b\\d[\\w.]*)",
  "(?<keyword>\\b(?:async|await|break|case|class|const|def|elif|else|enum|export|False|fn|for|from|func|function|if|" +
    "impl|import|in|let|match|None|null|pub|return|self|static|struct|True|true|false|try|except|use|var|while|with|yield)\\b)",
].join("|"), "g");

// Render a text into an element. Blocks that have not changed since the last call keep their nodes.
export function renderMarkdown(element, text) {
  const blocks = split(text.split("\n"));
  const before = element.blocks ?? [];
  let same = 0;
  while (same < before.length && same < blocks.length && before[same] === blocks[same].source) same += 1;
  while (element.children.length > same) element.lastChild.remove();
  element.append(...blocks.slice(same).map((block) => render(block, 0)));
  element.blocks = blocks.map((block) => block.source);
}

function split(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) { at += 1; continue; }
    const start = at;
    const kind = kindOf(lines, at);
    at = endOf(kind, lines, at);
    blocks.push({ kind, source: lines.slice(start, at).join("\n") });
  }
  return blocks;
}

function kindOf(lines, at) {
  const line = lines[at];
  if (line.length > MAX_INLINE) return "paragraph";
  if (FENCE.test(line)) return "code";
  if (HEADING.test(line)) return "heading";
  if (RULE.test(line)) return "rule";
  if (line.startsWith(">")) return "quote";
  if (ITEM.test(line)) return "list";
  if (line.includes("|") && TABLE.test(lines[at + 1] ?? "")) return "table";
  return "paragraph";
}

function endOf(kind, lines, at) {
  const has = (test) => at < lines.length && test(lines[at]);
  if (kind === "code") {
    const mark = FENCE.exec(lines[at])[1];
    at += 1;
    while (has((line) => !line.trim().startsWith(mark))) at += 1;
    return Math.min(at + 1, lines.length);
  }
  at += 1;
  if (kind === "quote") while (has((line) => line.startsWith(">"))) at += 1;
  if (kind === "table") while (has((line) => line.includes("|"))) at += 1;
  if (kind === "paragraph") while (has((line) => line.trim()) && kindOf(lines, at) === "paragraph") at += 1;
  if (kind === "list") {
    const belongs = (line = "") => ITEM.test(line) || /^\s+\S/.test(line);
    while (has((line) => belongs(line.trim() ? line : lines[at + 1])
      || (line.trim() && lines[at - 1].trim() && kindOf(lines, at) === "paragraph"))) at += 1;
  }
  return at;
}

function render({ kind, source }, depth) {
  const lines = source.split("\n");
  if (depth > MAX_DEPTH) return h("p", {}, source);
  if (kind === "code") return renderCode(lines);
  if (kind === "rule") return h("hr");
  if (kind === "list") return renderList(lines, depth);
  if (kind === "table") return renderTable(lines);
  if (kind === "heading") {
    const [, marks, text] = HEADING.exec(source);
    return h(`h${Math.min(6, marks.length + 2)}`, {}, ...inline(text));
  }
  if (kind === "quote") {
    return h("blockquote", {}, ...split(lines.map((line) => line.replace(/^> ?/, ""))).map((b) => render(b, depth + 1)));
  }
  return h("p", {}, ...inline(source));
}

function renderCode(lines) {
  const [, mark, language] = FENCE.exec(lines[0]);
  const isClosed = lines.length > 1 && lines.at(-1).trim().startsWith(mark);
  const text = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  const button = h("button", { class: "quiet", click: () => copy(text) }, "Copy");
  const head = h("div", { class: "code-head" }, h("span", {}, language || "text"), button);
  return h("div", { class: "code" }, head, h("pre", { tabindex: 0 }, h("code", {}, ...highlight(text))));
}

function highlight(text) {
  return matches(text, CODE, (kind, value) => h("span", { class: kind }, value));
}

function renderList(lines, depth) {
  const [, indent, marker] = ITEM.exec(lines[0]);
  const isOrdered = /\d/.test(marker);
  const items = [];
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= indent.length + 1) items.push([line.slice(found[0].length)]);
    else items.at(-1).push(line.replace(new RegExp(`^\\s{0,${indent.length + marker.length + 1}}`), ""));
  }
  const nodes = items.map((item) => {
    const blocks = split(item);
    const isPlain = blocks.length && blocks[0].kind === "paragraph";
    const first = isPlain ? inline(blocks[0].source) : [];
    return h("li", {}, ...first, ...blocks.slice(isPlain ? 1 : 0).map((block) => render(block, depth + 1)));
  });
  return h(isOrdered ? "ol" : "ul", isOrdered ? { start: parseInt(marker, 10) } : {}, ...nodes);
}

function renderTable(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
  const row = (line, tag) => h("tr", {}, ...cells(line).map((cell) => h(tag, {}, ...cell)));
  const body = lines.slice(2).map((line) => row(line, "td"));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, row(lines[0], "th")), h("tbody", {}, ...body)));
}

function inline(text, depth = 0) {
  if (text.length > MAX_INLINE || depth > MAX_DEPTH) return [text];
  return matches(text, INLINE, (kind, value, groups) => {
    if (kind === "code") return h("code", {}, value);
    if (kind === "url") return link(value, [value]);
    if (kind === "label") return link(groups.href, inline(value, depth + 1));
    return h({ bold: "strong", del: "del" }[kind] ?? "em", {}, ...inline(value, depth + 1));
  });
}

function link(href, children) {
  if (!/^https?:\/\//i.test(href)) return h("span", {}, ...children, ` (${href})`);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

// Return the texts between matches, and a node for each match, made from its first named group.
function matches(text, pattern, make) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const [kind, value] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    nodes.push(text.slice(end, match.index), make(kind, value, match.groups));
    end = match.index + match[0].length;
  }
  return [...nodes, text.slice(end)];
}
