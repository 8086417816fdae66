import * as ai from "ai";
import { WorkflowChatTransport } from "@ai-sdk/workflow/client";
import { drive, serve } from "../chat.mjs";

/** `resumeAt` is the address that a page has kept for coming back, as the package's documentation does it. */
const makeTransport = (api, fetch, { resumeAt, ...options }) =>
  new WorkflowChatTransport({
    api,
    fetch,
    ...options,
    ...(resumeAt && { prepareReconnectToStreamRequest: () => ({ api: resumeAt }) }),
  });

await serve((command) => drive(ai, makeTransport, command));
