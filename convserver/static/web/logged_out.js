// A page whose login has ended: back to the login, or on where there is one again.

/** Another tab may have logged in again. */
export async function logIn(id, login) {
  const answer = await fetch(`/api/native/conversations/${encodeURIComponent(id)}`).catch(() => undefined);
  if (answer?.ok) location.reload();
  else location.href = `${login}?${new URLSearchParams({ next: location.pathname + location.search + location.hash })}`;
}
