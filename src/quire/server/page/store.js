// Conversations, each a tree of messages, kept in the browser.
//
//   {id, title, time, nodes: {id: node}, chosen: {parent's id or "": child's id}}
//   node: {id, parent, role, content, ...}

const KEY = "quire.conversations";
const MAX_CONVERSATIONS = 200;

export const newId = () => Math.random().toString(36).slice(2, 12);

export class Store {
  constructor() {
    this.all = [];
    try { this.all = JSON.parse(localStorage.getItem(KEY) ?? "[]").filter(isConversation); } catch { /* start anew */ }
  }

  create() {
    const conversation = { id: newId(), title: "New chat", time: Date.now(), nodes: {}, chosen: {} };
    this.all.unshift(conversation);
    return conversation;
  }

  remove(conversation) {
    this.all = this.all.filter((each) => each !== conversation);
    this.save();
  }

  // Save all with messages; the oldest ones go when the browser's space is full.
  save() {
    this.all.sort((one, other) => other.time - one.time);
    const kept = this.all.filter((each) => Object.keys(each.nodes).length).slice(0, MAX_CONVERSATIONS);
    while (kept.length) {
      try {
        localStorage.setItem(KEY, JSON.stringify(kept));
        return;
      } catch {
        kept.pop();
      }
    }
    localStorage.removeItem(KEY);
  }

  export() {
    return JSON.stringify({ format: "quire-conversations-1", conversations: this.all }, null, 1);
  }

  // Add the conversations of an export, and return them.
  import(text) {
    const found = JSON.parse(text).conversations.filter(isConversation);
    const known = new Set(found.map((each) => each.id));
    this.all = [...found, ...this.all.filter((each) => !known.has(each.id))];
    this.save();
    return found;
  }
}

function isConversation(each) {
  const isText = (value) => typeof value === "string";
  return isText(each?.id) && isText(each.title) && each.nodes && each.chosen
    && Object.values(each.nodes).every((node) => isText(node?.id) && isText(node.role) && isText(node.content));
}

// Append a message and choose its branch.
export function add(conversation, parent, message) {
  const node = { id: newId(), parent, ...message };
  conversation.nodes[node.id] = node;
  conversation.chosen[parent ?? ""] = node.id;
  conversation.time = Date.now();
  return node;
}

// Return the messages of the chosen branch, in order.
export function branch(conversation) {
  const nodes = [];
  for (let at = ""; (at = conversation.chosen[at]) && conversation.nodes[at] && nodes.length < 10000;) {
    nodes.push(conversation.nodes[at]);
  }
  return nodes;
}

// Return a message and its alternatives, oldest first.
export function siblings(conversation, node) {
  return Object.values(conversation.nodes).filter((each) => each.parent === node.parent);
}
