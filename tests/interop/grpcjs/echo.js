// grpc-js against the echo server. Usage: echo.js PORT
'use strict';

const {grpc, check, within, unary, Stream, run} = require('./stranger');

const address = `127.0.0.1:${process.argv[2]}`;
const plain = (b) => b;
const method = (name, streams) => ({
  path: `/test.Echo/${name}`, requestStream: streams, responseStream: streams,
  requestSerialize: plain, requestDeserialize: plain, responseSerialize: plain, responseDeserialize: plain,
});
const Echo = grpc.makeGenericClientConstructor(
  {Unary: method('Unary', false), Stream: method('Stream', true), Missing: method('Missing', false)}, 'test.Echo');

const {status} = grpc;
const b = (text) => Buffer.from(text);
const soon = (ms) => ({deadline: Date.now() + ms});

function echo(client, data, metadata = new grpc.Metadata(), options = soon(20000)) {
  return unary((done) => client.Unary(data, metadata, options, done));
}

async function codeOf(client, data, metadata, options) {
  const {error} = await echo(client, data, metadata, options).done;
  return error ? error.code : status.OK;
}

async function testUnary(client) {
  const hello = await echo(client, b('hello')).done;
  check('unary echo', !hello.error && hello.response.equals(b('hello')), hello.error);
  const empty = await echo(client, b('')).done;
  check('unary empty', !empty.error && empty.response.length === 0);
  const large = Buffer.alloc(200000, 'x');
  const back = await echo(client, large).done;
  check('unary 200 KB', !back.error && back.response.equals(large));
  check('unary too big', await codeOf(client, Buffer.alloc(300000, 'x')) === status.RESOURCE_EXHAUSTED);

  const metadata = new grpc.Metadata();
  metadata.set('x-echo', 'value');
  metadata.set('x-other-bin', Buffer.from([0, 255, 1]));
  const valued = await echo(client, b('m'), metadata).done;
  check('unary metadata, beside binary metadata', !valued.error && valued.response.toString() === 'value', valued.error);

  const {error} = await echo(client, b('e')).done;
  check('unary error code', error.code === status.FAILED_PRECONDITION, error.code);
  check('unary error message', error.details === ' 100% bl\u00f6d ', error.details);
  const trailers = error.metadata.getMap();
  check('unary error trailers', trailers['fencelock-reason'] === 'STALE_TOKEN' &&
        trailers['fencelock-field'] === 'token' && trailers['fencelock-retry-after-ms'] === '1500', trailers);

  check('unary deadline', await codeOf(client, b('w'), new grpc.Metadata(), soon(200)) === status.DEADLINE_EXCEEDED);
  const waiting = echo(client, b('w'));
  const beside = await echo(client, b('beside')).done; // the first call has gone out before it
  check('a call beside one that waits', !beside.error);
  waiting.call.cancel();
  check('unary cancel', (await waiting.done).error.code === status.CANCELLED);
  check('unary after cancel', await codeOf(client, b('still')) === status.OK);

  const missing = await unary((done) => client.Missing(b(''), done)).done;
  check('unknown method', missing.error.code === status.UNIMPLEMENTED);
  const big = new grpc.Metadata();
  big.set('x-big', 'v'.repeat(20000));
  const over = await codeOf(client, b('a'), big);
  check('metadata over the limit', over === status.RESOURCE_EXHAUSTED, over);
  check('and the connection lives on', await codeOf(client, b('a')) === status.OK);
}

async function testCompression() {
  const client = new Echo(address, grpc.credentials.createInsecure(),
    {'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip});
  check('compressed', await codeOf(client, Buffer.alloc(1000, 'x')) === status.UNIMPLEMENTED);
  client.close();
}

async function drain(call) {
  const stream = new Stream(call);
  const messages = [];
  for (;;) {
    const event = await stream.next();
    if (!event.message) return {messages, error: event.error};
    messages.push(event.message);
  }
}

async function testStream(client) {
  const many = client.Stream(soon(30000));
  for (let i = 0; i < 2000; i++) many.write(b(`${i}`));
  many.end();
  const all = await drain(many);
  check('stream 2000 in order', all.messages.map(String).join() === [...Array(2000).keys()].join(), all.error);

  const none = client.Stream(soon(20000));
  none.end();
  check('stream empty', (await drain(none)).messages.length === 0);

  const big = client.Stream(soon(30000));
  for (let i = 0; i < 50; i++) big.write(b('b'));
  big.end();
  const replies = await drain(big);
  check('stream big replies', replies.messages.reduce((sum, m) => sum + m.length, 0) === 5000000, replies.error);

  const failing = client.Stream(soon(20000));
  failing.write(b('a'));
  failing.write(b('e'));
  const failed = await drain(failing);
  check('stream error after a message', failed.messages.length === 1 && failed.error.code === status.FAILED_PRECONDITION);

  const late = client.Stream(soon(200));
  late.write(b('w'));
  check('stream deadline', (await drain(late)).error.code === status.DEADLINE_EXCEEDED);

  const talk = client.Stream(soon(20000));
  const ears = new Stream(talk);
  talk.write(b('one'));
  check('stream ping-pong', (await ears.message()).equals(b('one')));
  talk.write(b('two'));
  check('stream ping-pong again', (await ears.message()).equals(b('two')));
  talk.cancel();
  check('stream cancel', (await ears.next()).error.code === status.CANCELLED);
}

async function testWindows() {
  for (const window of [65535, 65536, 8 * 1024 * 1024]) {
    const client = new Echo(address, grpc.credentials.createInsecure(),
      {'grpc-node.flow_control_window': window, 'grpc.use_local_subchannel_pool': 1});
    const {error, response} = await echo(client, b('b')).done;
    check(`window ${window}`, !error && response.equals(Buffer.alloc(100000)), error);
    client.close();
  }
  const slow = new Echo(address, grpc.credentials.createInsecure(), {'grpc.use_local_subchannel_pool': 1});
  const call = slow.Stream(soon(30000));
  for (let i = 0; i < 200; i++) call.write(b('b')); // 20 MB, far more than any window
  call.end();
  let bytes = 0;
  for await (const message of call) bytes += message.length; // one at a time
  check('20 MB to a reader with back-pressure', bytes === 200 * 100000, bytes);
  slow.close();
}

async function testWaiters(client) {
  const calls = [];
  for (let i = 0; i < 5000; i++) calls.push(echo(client, b('w')));
  check('a call beside 5000 waiting ones', (await echo(client, b('xbeside')).done).response.equals(b('xbeside')));
  calls.forEach((each) => each.call.cancel());
  const ends = await Promise.all(calls.map((each) => each.done));
  check('5000 cancelled', ends.every(({error}) => error.code === status.CANCELLED));
  check('a call after them', await codeOf(client, b('after')) === status.OK);
}

// Last: SIGTERM lets what runs end by itself, takes nothing new, and ends the connection.
async function testDrain(client) {
  const waiting = echo(client, b('w'), new grpc.Metadata(), soon(1000));
  check('a call before the drain', await codeOf(client, b('x')) === status.OK);
  process.kill(Number(process.argv[3]), 'SIGTERM');
  check('a waiting call ends by itself in a drain', (await waiting.done).error.code === status.DEADLINE_EXCEEDED);
}

run(async () => {
  const client = new Echo(address, grpc.credentials.createInsecure());
  await within('the channel', new Promise((resolve) => client.waitForReady(Date.now() + 20000, resolve)));
  await testUnary(client);
  await testCompression();
  await testStream(client);
  await testWindows();
  await testWaiters(client);
  await testDrain(client);
  client.close();
});
