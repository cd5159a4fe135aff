// What both stories need: counted checks, and calls as promises with a limit.
'use strict';

const grpc = require('@grpc/grpc-js');

const PATIENCE_MS = 30000;
let failures = 0;

function check(what, ok, detail) {
  if (!ok) failures++;
  console.log((ok ? 'ok      ' : 'FAILED  ') + what + (ok || detail === undefined ? '' : `: ${JSON.stringify(detail)}`));
}

function within(what, promise, ms = PATIENCE_MS) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing after ${ms} ms`)), ms);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

// {response} or {error}, and {call} at once, for those who cancel.
function unary(invoke) {
  let call;
  const done = new Promise((resolve) => {
    call = invoke((error, response) => resolve({error, response}));
  });
  return {call, done: within('a call', done)};
}

// Messages and the end of a stream, in order: next() gives {message}, {end} or {error}.
class Stream {
  constructor(call) {
    this.call = call;
    this.heard = [];
    this.waiting = null;
    call.on('data', (message) => this.tell({message}));
    call.on('error', (error) => this.tell({error}));
    call.on('end', () => this.tell({end: true}));
  }

  tell(event) {
    if (this.waiting) {
      const waiting = this.waiting;
      this.waiting = null;
      waiting(event);
    } else {
      this.heard.push(event);
    }
  }

  next() {
    if (this.heard.length) return Promise.resolve(this.heard.shift());
    return within('a message', new Promise((resolve) => { this.waiting = resolve; }));
  }

  async message() {
    const event = await this.next();
    if (!event.message) throw new Error(`no message but ${event.error || 'the end'}`);
    return event.message;
  }
}

function run(story) {
  story().catch((error) => check('the story goes to its end', false, String(error.stack || error)))
    .finally(() => process.exit(failures ? 1 : 0));
}

module.exports = {grpc, check, within, unary, Stream, run};
