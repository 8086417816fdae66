// Drives a chat as a page with useChat does. A command is a line of JSON on stdin, what became of it one on stdout:
//
// {api, chatId, messages?, options?, steps: [{send: {id, text}} | {resume: true} | {until: url} | {get: url}]}
// A step with `stopAtTool` has the client stop as soon as it knows of a tool call; `until` waits for a turn's end,
// `get` notes what a resource is at that moment.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

/** Answer each command with what `carryOut` finds, one after the other. */
export async function serve(carryOut) {
  for await (const line of createInterface({ input: process.stdin })) {
    const answer = await carryOut(JSON.parse(line)).catch((error) => ({ failure: error.stack }));
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
}

const partsOf = (message) => message.parts.filter((part) => part.toolCallId !== undefined);

/** What useChat keeps in React state; it notes the preliminary outputs that the page would have shown. */
class State {
  status = "ready";
  error = undefined;
  preliminary = [];

  constructor(messages, onChange) {
    this.messages = messages;
    this.onChange = onChange;
  }

  snapshot = (thing) => structuredClone(thing);
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  pushMessage = (message) => this.#put(this.messages.length, message);
  replaceMessage = (index, message) => this.#put(index, message);

  #put(index, message) {
    const kept = structuredClone(message);
    this.messages = this.messages.toSpliced(index, 1, kept);
    for (const part of partsOf(kept)) {
      const known = JSON.stringify(this.preliminary.at(-1));
      const shown = { toolCallId: part.toolCallId, output: part.output };
      if (part.preliminary && known !== JSON.stringify(shown)) this.preliminary.push(shown);
    }
    this.onChange(kept);
  }
}

async function untilEnded(url) {
  for (;;) {
    const turn = await (await fetch(url)).json();
    if (["completed", "error", "aborted"].includes(turn.status)) return;
    await sleep(30);
  }
}

/** Why messages would be refused where they are stored or handed on, by the package's own schema. */
async function problemsOf(ai, messages) {
  const problems = [];
  for (const message of messages) {
    const checked = await ai.safeValidateUIMessages({ messages: [message] });
    if (!checked.success) problems.push(`${message.id}: ${checked.error.message}`);
  }
  return problems;
}

/** Carry out a command with the `ai` package of a folder, and `makeTransport(command.api, fetch, command.options)`. */
export async function drive(ai, makeTransport, command) {
  const found = { errors: [], data: {}, finishes: [], clientToolCalls: 0, requests: [], warnings: [], got: [] };
  for (const level of ["error", "warn"]) console[level] = (...words) => found.warnings.push(words.join(" "));
  const recording = async (url, init) => {
    const answer = await fetch(url, init);
    found.requests.push({ method: init?.method ?? "GET", url, status: answer.status });
    return answer;
  };
  let stopsAtTool = false;
  const state = new State(command.messages ?? [], (message) => {
    if (stopsAtTool && partsOf(message).some((part) => part.state === "input-available")) chat.stop();
  });
  const chat = new (class extends ai.AbstractChat {})({
    id: command.chatId,
    state,
    transport: makeTransport(command.api, recording, command.options ?? {}),
    onError: (error) => found.errors.push({ message: error.message, statusCode: error.statusCode }),
    onData: (part) => { (found.data[part.type] ??= []).push(structuredClone(part)); },
    onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
      found.finishes.push({ isAbort, isDisconnect, isError, finishReason }),
    onToolCall: () => { found.clientToolCalls += 1; },
  });
  for (const step of command.steps) {
    stopsAtTool = step.stopAtTool ?? false;
    if (step.send) {
      await chat.sendMessage({ id: step.send.id, role: "user", parts: [{ type: "text", text: step.send.text }] });
    }
    if (step.resume) await chat.resumeStream();
    if (step.until) await untilEnded(step.until);
    if (step.get) found.got.push(await (await fetch(step.get)).json());
  }
  const shown = state.preliminary.map(({ output }) => output);
  const invalid = await problemsOf(ai, [...(command.messages ?? []), ...state.messages, ...shown]);
  const wouldSendAgain = ai.lastAssistantMessageIsCompleteWithToolCalls({ messages: state.messages });
  const { messages, status, preliminary } = state;
  return { ...found, messages, status, preliminary, wouldSendAgain, invalid };
}
