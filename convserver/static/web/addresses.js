// Where conversations are, and the way to another page.

export function go(address) {
  location.assign(address);
}

/** Where a conversation is: ids are of any text. */
export function conversationAddress(id) {
  return document.body.dataset.conversation.replace("conversation_id", encodeURIComponent(id));
}
