// Elements, and short forms of numbers.

export const $ = (id) => document.getElementById(id);

// Make an element. Attributes that are functions are listeners; texts are never parsed as HTML.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "class") element.className = value;
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const count = (value) => Math.round(value).toLocaleString("en");

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value >= 100) return `${Math.round(value)} s`;
  if (value >= 1) return `${value.toPrecision(3)} s`;
  if (value >= 0.001) return `${(value * 1000).toPrecision(3).replace(/\.0+$/, "")} ms`;
  return `${Math.round(value * 1e6)} µs`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export const rate = (value) => (value >= 100 ? count(value) : value.toFixed(1));

// Copy a text. Browsers offer their clipboard only to safe origins, which an address in a local network is not.
export function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return null;
}

// Replace an element's children only if what they show has changed.
export function update(element, state, make) {
  const shown = JSON.stringify(state);
  if (element.shown === shown) return;
  element.shown = shown;
  element.replaceChildren(...[make()].flat());
}
