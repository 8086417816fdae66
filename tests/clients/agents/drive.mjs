// Follows an instance's events during one turn as Cloudflare's client package does, and then again as a late client.
//
// {url, text} in; the frames, live and replayed, and what the package's reducer and its hook make of them, out.

import { applyAgentToolEvent, createAgentToolEventState } from "agents/chat";
import { useAgentToolEvents } from "agents/react";
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import { serve } from "../chat.mjs";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
console.error = () => {}; // react-test-renderer says that it is deprecated.

const ENDS = ["finished", "error", "aborted"];
const endsTurn = (frame) => frame.type === "turn-event" && ENDS.includes(frame.event.kind);

/** Yield the frames of the feed; `onOpen` is called when its headers are here. */
async function* framesOf(url, onOpen = () => {}) {
  const answer = await fetch(`${url}/events`);
  onOpen();
  let text = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const events = (text + piece).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice(6));
    }
  }
}

async function untilTurnEnds(url, onOpen) {
  const frames = [];
  for await (const frame of framesOf(url, onOpen)) {
    frames.push(frame);
    if (endsTurn(frame)) return frames;
  }
  throw new Error("the feed ended before the turn");
}

/** What the hook `useAgentToolEvents` of a page shows after these frames came over its socket. */
async function hooked(frames) {
  const agent = new EventTarget();
  let shown;
  const Page = () => {
    shown = useAgentToolEvents({ agent });
    return null;
  };
  let page;
  await act(() => { page = create(createElement(Page)); });
  for (const frame of frames) {
    await act(() => agent.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(frame) })));
  }
  const { runsById, runsByToolCallId, unboundRuns } = shown;
  await act(() => page.unmount());
  return { runsById, runsByToolCallId, unboundRuns };
}

const reduced = (frames) => frames.reduce(applyAgentToolEvent, createAgentToolEventState());

await serve(async ({ url, text }) => {
  const post = () =>
    fetch(`${url}/turns`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ message: text }),
    });
  const live = await untilTurnEnds(url, post);
  const replayed = await untilTurnEnds(url);
  return {
    live,
    replayed,
    reducedLive: reduced(live),
    reducedReplayed: reduced(replayed),
    hookedLive: await hooked(live),
    hookedTwice: await hooked([...live, ...replayed]),
  };
});
