// A resident client program on Node's own fetch: what it sees is a status, headers and a body.
// It reads a task per line and answers with a line, as the other programs do.
import { createInterface } from "node:readline";

const EVENTS_BEFORE_LEAVING = 2;

// An application reads these names: fetch hides what went wrong in `cause`.
function nameOf(error) {
  const cause = error.cause ? `: ${error.cause.code ?? error.cause.name}` : "";
  return `${error.name}${cause}`;
}

async function ask(task) {
  const seen = { body: "" };
  const leave = new AbortController();
  const signal = AbortSignal.any([leave.signal, AbortSignal.timeout(task.seconds * 1000)]);
  try {
    const response = await fetch(task.url, { method: "POST", headers: task.headers, body: task.text, signal });
    seen.status = response.status;
    seen.headers = Object.fromEntries(response.headers);
    if (task.do === "whole") {
      seen.body = await response.text();
      return seen;
    }
    const decoder = new TextDecoder();
    for await (const piece of response.body) {
      seen.body += decoder.decode(piece, { stream: true });
      if (task.do === "leave" && seen.body.split("\n\n").length > EVENTS_BEFORE_LEAVING) {
        leave.abort();
        return seen;
      }
    }
  } catch (error) {
    seen.error = nameOf(error);
  }
  return seen;
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await ask(JSON.parse(line))));
}
