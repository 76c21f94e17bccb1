// What tests/clients/conversation.py says, for Node: asks turn by turn, and prints the result's lines as JSON.
import { setTimeout as sleep } from "node:timers/promises";

export const asked = JSON.parse(process.env.ASKED);
export const CONNECTION_LIMIT = "websocket_connection_limit_reached";

const TERMINAL = new Set(["response.completed", "response.failed", "response.incomplete", "error"]);

export class Ear {
  text = "";
  ending = "nothing";
  code = null;
  responseId = "";
  calls = [];

  // One event; whether it ends the turn.
  hear(event) {
    if (event.type === "response.output_text.delta") this.text += event.delta;
    else if (event.type === "response.output_item.done" && event.item.type === "function_call") this.calls.push(event.item);
    else if (event.type === "response.completed") {
      this.ending = "completed";
      this.responseId = event.response.id;
    } else if (event.type === "error") this.hearError(event.type, (event.error ?? event).code);
    else if (TERMINAL.has(event.type)) this.hearError(event.type, event.response.error?.code);
    return TERMINAL.has(event.type);
  }

  hearError(kind, code) {
    this.ending = `${kind} ${code}`;
    this.code = code;
  }

  get line() {
    const shown = this.text + this.calls.map((call) => `${call.name}(${call.arguments})`).join("");
    return this.ending === "completed" ? shown : `${shown}[${this.ending}]`;
  }
}

export async function converse(turn) {
  const lines = [];
  let request = asked.first_request;
  let done = 0;
  let mayAskAgain = true;
  while (done < asked.turns) {
    const ear = await turn(request);
    lines.push(ear.line);
    if (ear.ending === "completed") {
      request = nextRequest(request, ear);
      done += 1;
      await sleep(asked.pause_seconds * 1000);
    } else if (ear.code === CONNECTION_LIMIT && mayAskAgain) mayAskAgain = false;
    else break;
  }
  process.stdout.write(`${JSON.stringify(lines)}\n`);
}

function nextRequest(request, heard) {
  if (heard.calls.length > 0) {
    const outputs = heard.calls.map((call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: asked.found,
    }));
    return { ...request, input: [...request.input, ...heard.calls, ...outputs] };
  }
  return asked.is_chained ? { ...request, previous_response_id: heard.responseId } : request;
}
