// Files of a conversation: the server keeps them as a collection, in which its questions search.

import { call } from "./api.js";

export const collectionOf = (conversation) => `chat-${conversation.id}`;

// Add files to a conversation's collection. Returns the server's outcome for each.
export async function attach(conversation, files) {
  const own = collectionOf(conversation);
  if (!conversation.collection) {
    await call("v1/collections", { body: { name: own } }).catch((error) => { if (error.status !== 409) throw error; });
  }
  const name = conversation.collection || own;
  const documents = await Promise.all(files.map(async (file) => ({ name: file.name, data: await toBase64(file) })));
  const reply = await call(`v1/collections/${encodeURIComponent(name)}/documents`, { body: { documents } });
  conversation.collection = name;
  return (await reply.json()).documents;
}

export function forget(conversation) {
  if (conversation.collection === collectionOf(conversation)) {
    call(`v1/collections/${encodeURIComponent(conversation.collection)}`, { method: "DELETE" }).catch(() => {});
  }
}

function toBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
