// openai-node: `responses.stream()` and its final response, whose text has to be what was streamed.
import assert from "node:assert";
import OpenAI from "openai";
import { asked, converse, Ear } from "./conversation.mjs";

const client = new OpenAI({ baseURL: asked.base_url, apiKey: asked.key, maxRetries: 0 });

async function turn(request) {
  const ear = new Ear();
  try {
    const stream = client.responses.stream(request);
    for await (const event of stream) ear.hear(event);
    const final = await stream.finalResponse();
    assert.equal(final.output_text ?? "", ear.text);
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    ear.hearError(error.constructor.name, error.code);
  }
  return ear;
}

await converse(turn);
