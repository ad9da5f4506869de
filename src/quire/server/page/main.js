// The page: models, conversations, views, and the settings that the browser keeps.

import { getJson } from "./api.js";
import { collectionOf, forget } from "./attach.js";
import { Chat } from "./chat.js";
import { showConnect } from "./connect.js";
import { $, h } from "./dom.js";
import { EngineView } from "./engine.js";
import { Watch } from "./live.js";
import { Store } from "./store.js";

const SETTINGS = ["system", "temperature", "top-p", "max-tokens"];
const AUTO = "auto";

const store = new Store();
const engineView = new EngineView($("engine"));
const watch = new Watch({ onSnapshot: showSnapshot, onLost: () => showState("failed", "no connection") });
const chat = new Chat(store, { chooseModel: () => $("model").value, onAnswered: followModel });
chat.onChange = showConversations;
let wasLost = true;

function showSnapshot(snapshot) {
  if (wasLost) loadModels(snapshot);
  wasLost = false;
  const model = snapshot.models.find((each) => each.name === snapshot.model);
  showState(model.state, model.state);
  chat.blockSize = snapshot.engine?.block_size ?? chat.blockSize;
  engineView.show(snapshot);
}

function showState(state, text) {
  wasLost ||= text !== state;
  $("state").className = `state ${state}`;
  $("state").textContent = text;
}

async function loadModels({ models }) {
  const names = new Set([AUTO, ...models.flatMap((each) => each.names)]);
  const data = (await getJson("v1/models")).data.filter(({ id }) => names.has(id)); // embedders answer nothing
  const chosen = $("model").value || localStorage.getItem("quire.model");
  $("model").replaceChildren(...data.map(({ id }) => h("option", { value: id }, id)));
  if (data.some(({ id }) => id === chosen)) $("model").value = chosen;
  watchModel();
  loadCollections();
}

async function loadCollections() {
  if (document.body.dataset.collections === "no") return;
  $("attach").hidden = false;
  const own = new Set(store.all.map(collectionOf)); // of other conversations
  const { data } = await getJson("v1/collections");
  chat.setCollections(data.map(({ name }) => name).filter((name) => !own.has(name)));
}

function watchModel() {
  const model = $("model").value;
  watch.choose(model && model !== AUTO ? model : null);
}

// With the model auto, show the engine that answered.
function followModel(node) {
  if ($("model").value === AUTO && node.model !== AUTO) watch.choose(node.model);
}

function showConversations() {
  const items = store.all.filter((each) => Object.keys(each.nodes).length).map((each) => h("li", {},
    h("button", { class: "title", "aria-current": each === chat.conversation ? "true" : null, click: () => chat.open(each) },
      each.title),
    h("button", { class: "quiet icon", "aria-label": `Delete ${each.title}`, title: "Delete", click: () => remove(each) }, "×")));
  $("conversations").replaceChildren(...items);
}

function remove(conversation) {
  store.remove(conversation);
  forget(conversation);
  if (conversation === chat.conversation) chat.open(store.all[0] ?? store.create());
  else showConversations();
}

function newChat() {
  const { nodes } = chat.conversation;
  chat.open(Object.keys(nodes).length ? store.create() : chat.conversation);
  showView("chat");
  $("question").focus();
}

function download() {
  const url = URL.createObjectURL(new Blob([store.export()], { type: "application/json" }));
  h("a", { href: url, download: "quire-conversations.json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function upload() {
  const [file] = $("import-file").files;
  $("import-file").value = "";
  try {
    const [newest] = store.import(await file.text());
    chat.open(newest ?? chat.conversation);
  } catch {
    alert("This file has no conversations of this page.");
  }
}

// On narrow screens one view shows at a time.
function showView(name) {
  document.body.dataset.view = name;
  for (const each of ["chat", "engine"]) $(`show-${each}`).setAttribute("aria-pressed", String(each === name));
}

// On screens without room for them, the conversations are a drawer.
function showHistory(isOpen) {
  document.body.classList.toggle("history", isOpen);
  $("show-history").setAttribute("aria-expanded", String(isOpen));
}

function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  window.dispatchEvent(new Event("themechange"));
}

function switchTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  localStorage.setItem("quire.theme", isDark ? "light" : "dark");
  showTheme(localStorage.getItem("quire.theme"));
}

for (const id of SETTINGS) {
  $(id).value = localStorage.getItem(`quire.${id}`) ?? "";
  $(id).addEventListener("change", () => localStorage.setItem(`quire.${id}`, $(id).value));
}
$("model").addEventListener("change", () => { localStorage.setItem("quire.model", $("model").value); watchModel(); });
$("new-chat").addEventListener("click", newChat);
$("export").addEventListener("click", download);
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", upload);
$("show-chat").addEventListener("click", () => showView("chat"));
$("show-engine").addEventListener("click", () => showView("engine"));
$("show-history").addEventListener("click", () => showHistory(!document.body.classList.contains("history")));
$("history").addEventListener("click", (event) => { if (event.target.matches("#new-chat, .title")) showHistory(false); });
$("theme").addEventListener("click", switchTheme);
$("connect").addEventListener("click", () =>
  showConnect($("model").value, Boolean(sessionStorage.getItem("quire.key"))));
showView("chat");
showTheme(localStorage.getItem("quire.theme"));
showConversations();
