// openai-node: the raw loop, `responses.create({ stream: true })`.
import OpenAI from "openai";
import { asked, converse, Ear } from "./conversation.mjs";

const client = new OpenAI({ baseURL: asked.base_url, apiKey: asked.key, maxRetries: 0 });

async function turn(request) {
  const ear = new Ear();
  try {
    const stream = await client.responses.create({ ...request, stream: true });
    for await (const event of stream) ear.hear(event);
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    ear.hearError(error.constructor.name, error.code);
  }
  return ear;
}

await converse(turn);
