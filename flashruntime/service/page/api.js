// The coordinator's API: calls, and the stream of events, both with the token of this tab.

const PREFIX = "/v1alpha1";
const KEY = "flashruntime-token";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

const headers = (more) => (token.get() ? { ...more, Authorization: `Bearer ${token.get()}` } : more);

async function checked(answer) {
  if (answer.ok) return answer;
  let detail = `${answer.status} ${answer.statusText}`;
  try {
    detail = (await answer.json()).detail ?? detail;
  } catch { /* no JSON: the status says enough */ }
  throw new Refused(answer.status, detail);
}

async function ask(path, accept) {
  const ended = AbortSignal.timeout(15000);
  return checked(await fetch(PREFIX + path, { headers: headers({ Accept: accept }), cache: "no-store", signal: ended }));
}

export const get = async (path) => (await ask(path, "application/json")).json();
export const getText = async (path) => (await ask(path, "text/plain")).text();

// Reads events beyond `after` until the stream ends; `heard` is called whenever anything arrives.
export async function follow(after, { signal, event, heard }) {
  const answer = await checked(
    await fetch(`${PREFIX}/events?created=false&brief=true&after=${after}`, {
      headers: headers({ Accept: "text/event-stream" }), cache: "no-store", signal,
    }),
  );
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    heard();
    for (const block of blocks) {
      const lines = block.split("\n");
      const id = lines.find((line) => line.startsWith("id: "));
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      event(id === undefined ? null : Number(id.slice(4)), data ? JSON.parse(data) : null);
    }
  }
}
