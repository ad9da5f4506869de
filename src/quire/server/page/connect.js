// How programs use this server: its address, the key, and examples.

import { address } from "./api.js";
import { $, copy, h } from "./dom.js";

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function showConnect(model, needsKey) {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] });
  const curl = [
    `curl -s ${address("v1/chat/completions")}${needsKey ? " -H 'Authorization: Bearer KEY'" : ""} \\`,
    "  -H 'Content-Type: application/json' \\", `  -d ${quote(body)}`,
  ].join("\n");
  const python = [
    "from openai import OpenAI", "",
    `client = OpenAI(base_url="${address("v1")}", api_key="${needsKey ? "KEY" : "none"}")`,
    'messages = [{"role": "user", "content": "Hello"}]',
    `answer = client.chat.completions.create(model=${JSON.stringify(model)}, messages=messages)`,
    "print(answer.choices[0].message.content)",
  ].join("\n");
  const facts = h("dl", { class: "facts" },
    h("dt", {}, "Address"), h("dd", {}, h("code", {}, address("v1"))),
    h("dt", {}, "Key"), h("dd", {}, needsKey ? "the one that you gave this page" : "none is needed"),
    h("dt", {}, "Model"), h("dd", {}, h("code", {}, model)));
  const links = ["docs", "v1/models", "metrics", "health", "openapi.json"].flatMap((path) =>
    [h("a", { href: address(path), target: "_blank" }, `/${path}`), " "]);
  $("examples").replaceChildren(
    h("p", {}, "The API is OpenAI's; Anthropic's is below /v1/messages."), facts,
    example("curl", curl), example("Python", python), needsKey ? "" : h("p", {}, ...links));
  $("connect-dialog").showModal();
}

function example(name, text) {
  const button = h("button", { class: "quiet", click: () => copy(text) }, "Copy");
  return h("div", { class: "code" }, h("div", { class: "code-head" }, h("span", {}, name), button),
    h("pre", { tabindex: 0 }, h("code", {}, text)));
}
