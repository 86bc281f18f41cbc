// Sends the token of CONVSERVER_TOKEN with every request, which the conformance suite has no option for.
// Loaded before it, by `node --import`: its fetch and its undici share one dispatcher.
import { Agent, setGlobalDispatcher } from "undici";

const authorization = `Bearer ${process.env.CONVSERVER_TOKEN}`;

function withToken(headers) {
  return Array.isArray(headers)
    ? [...headers, "authorization", authorization]
    : { ...headers, authorization };
}

setGlobalDispatcher(
  new Agent().compose((dispatch) => (options, handler) =>
    dispatch({ ...options, headers: withToken(options.headers) }, handler),
  ),
);
