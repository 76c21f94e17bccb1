// openai-node: `ResponsesWS`, opened again where the gateway has closed it between turns.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
import { asked, CONNECTION_LIMIT, converse, Ear } from "./conversation.mjs";

const client = new OpenAI({ baseURL: asked.base_url, apiKey: asked.key, maxRetries: 0 });
let socket;

function leave() {
  socket?.close();
  socket = undefined;
}

// The turn, or the code of the close that came before anything was said.
function ask(request) {
  socket ??= new ResponsesWS(client);
  const current = socket;
  return new Promise((resolve) => {
    const ear = new Ear();
    const heard = (event) => ear.hear(event) && done(ear);
    const failed = (error) => (error.error ? heard(error.error) : undefined);
    const closed = (code) => done(code);
    const done = (result) => {
      current.off("event", heard);
      current.off("close", closed);
      resolve(result);
    };
    current.on("event", heard);
    current.on("error", failed);
    current.on("close", closed);
    current.send({ type: "response.create", ...request });
  });
}

const PASSING_CLOSES = new Set([1001, 1012]);

async function turn(request) {
  if (socket?.socket.readyState > 1) socket = undefined;
  let ear = await ask(request);
  if (PASSING_CLOSES.has(ear)) {
    socket = undefined;
    ear = await ask(request);
  }
  if (!(ear instanceof Ear)) throw new Error(`closed with ${ear}`);
  if (ear.code === CONNECTION_LIMIT) leave();
  return ear;
}

await converse(turn);
leave();
