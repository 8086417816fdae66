import * as ai from "ai";
import { drive, serve } from "../chat.mjs";

const makeTransport = (api, fetch, options) => new ai.DefaultChatTransport({ api, fetch, ...options });

await serve((command) => drive(ai, makeTransport, command));
