// grpc-js with stubs made from our .proto files, against a real cluster. Usage: locks.js ENDPOINTS PROTO_DIR
'use strict';

const loader = require('@grpc/proto-loader');
const {grpc, check, unary, Stream, run} = require('./stranger');

const [endpoints, protoDir] = process.argv.slice(2);
const loaded = grpc.loadPackageDefinition(loader.loadSync(
  ['fencelock/v1/lock.proto', 'fencelock/v1/admin.proto'],
  {includeDirs: [protoDir], keepCase: true, longs: String, enums: String, oneofs: true, defaults: true}));
const {LockService} = loaded.fencelock.v1;
const {status} = grpc;
const addresses = endpoints.split(',');

const connect = (address) => new LockService(address, grpc.credentials.createInsecure());
const soon = (ms = 20000) => ({deadline: Date.now() + ms});
const ask = (client, method, request, options = soon()) =>
  unary((done) => client[method](request, options, done));

async function want(client, method, request) {
  const {error, response} = await ask(client, method, request).done;
  if (error) throw new Error(`${method}: ${error.message}`);
  return response;
}

async function checkError(what, client, method, request, code, reason, field) {
  const {error} = await ask(client, method, request).done;
  const trailers = error ? error.metadata.getMap() : {};
  check(what, error && error.code === code && trailers['fencelock-reason'] === reason &&
        (field === undefined || trailers['fencelock-field'] === field), error && {code: error.code, trailers});
}

async function newSession(client, name) {
  return (await want(client, 'CreateSession', {options: {client: name}})).session_id;
}

async function testUnary(client, other) {
  const a = await newSession(client, 'a');
  const c = await newSession(other, 'c'); // through another node
  const first = await want(client, 'Acquire', {session_id: a, name: 'invoice/1'});
  check('a grant', first.granted && Number(first.token) > 0, first);
  const held = await want(other, 'Acquire', {session_id: c, name: 'invoice/1'});
  check('another is refused, and learns who has it', !held.granted && held.holder && held.holder.token === first.token, held);
  const shown = await want(other, 'Describe', {name: 'invoice/1'});
  check('describe', shown.holders.length === 1 && shown.holders[0].client === 'a', shown);

  const waiting = ask(other, 'Acquire', {session_id: c, name: 'invoice/1', wait_ms: 15000, request_id: 9});
  let queue;
  do { // until it stands in the queue
    queue = await want(client, 'Describe', {name: 'invoice/1'});
  } while (queue.waiter_count === 0);
  await want(client, 'Release', {session_id: a, name: 'invoice/1', token: first.token});
  const second = (await waiting.done).response;
  check('a hand-over, with a higher token', second && second.granted && BigInt(second.token) > BigInt(first.token), second);

  const abandoned = ask(client, 'Acquire', {session_id: a, name: 'invoice/1', wait_ms: 15000});
  do {
    queue = await want(client, 'Describe', {name: 'invoice/1'});
  } while (queue.waiter_count === 0);
  abandoned.call.cancel();
  check('a cancelled wait', (await abandoned.done).error.code === status.CANCELLED);
  do {
    queue = await want(client, 'Describe', {name: 'invoice/1'});
  } while (queue.waiter_count !== 0);
  check('leaves the queue', true);

  const late = ask(client, 'Acquire', {session_id: a, name: 'invoice/1', wait_ms: 60000}, soon(300));
  check('a deadline ends a wait', (await late.done).error.code === status.DEADLINE_EXCEEDED);
  const list = await want(client, 'List', {prefix: 'invoice/'});
  check('list', JSON.stringify(list).includes('invoice/1'), list);
  await want(other, 'CloseSession', {session_id: c});
  await checkError('a session that ended', other, 'KeepAlive', {session_id: c}, status.NOT_FOUND, 'SESSION_NOT_FOUND');
  await want(client, 'KeepAlive', {session_id: a});
  return a;
}

async function testErrors(client, session) {
  const acquire = (more) => ({session_id: session, name: 'x', ...more});
  const bad = [
    ['an empty name', 'Acquire', acquire({name: ''}), 'name'],
    ['a long name', 'Acquire', acquire({name: 'n'.repeat(513)}), 'name'],
    ['a control character', 'Acquire', acquire({name: 'a\nb'}), 'name'],
    ['an unknown mode', 'Acquire', acquire({mode: 77}), 'mode'],
    ['permits without a count', 'Acquire', acquire({mode: 'COUNTED'}), 'limit'],
    ['a wait of two days', 'Acquire', acquire({wait_ms: 172800000}), 'wait_ms'],
    ['a ttl of zero', 'CreateSession', {options: {ttl_ms: 0}}, 'ttl_ms'],
    ['a token of zero', 'Release', {session_id: session, name: 'x', token: 0}, 'token'],
  ];
  for (const [what, method, request, field] of bad)
    await checkError(what, client, method, request, status.INVALID_ARGUMENT, 'BAD_ARGUMENT', field);
  const {token} = await want(client, 'Acquire', acquire({name: 'stale'}));
  await checkError('a wrong token', client, 'Release', {session_id: session, name: 'stale', token: BigInt(token) + 1n + ''},
    status.FAILED_PRECONDITION, 'STALE_TOKEN');
}

async function testStream(client) {
  const stream = new Stream(client.OpenSession());
  stream.call.write({open: {options: {client: 'streamer'}}});
  stream.call.write({acquire: {name: 'stream/1', request_id: 1}}); // not waiting for `opened`
  const opened = (await stream.message()).opened;
  check('opened', opened && opened.session_id !== '', opened);
  const acquired = (await stream.message()).acquired;
  check('a pipelined grant', acquired && acquired.request_id === '1' && acquired.response.granted, acquired);
  stream.call.write({keep_alive: {seq: 1}});
  check('an acknowledgement', (await stream.message()).keep_alive_ack.seq === '1');
  stream.call.cancel();
  check('a stream that is cut', (await stream.next()).error.code === status.CANCELLED);
  const again = new Stream(client.OpenSession());
  again.call.write({resume: {session_id: opened.session_id}});
  const resumed = (await again.message()).opened;
  check('is resumed, and shows what it holds', resumed.session_id === opened.session_id &&
        resumed.holds.length === 1 && resumed.holds[0].token === acquired.response.token, resumed);
  again.call.write({release: {name: 'stream/1', token: acquired.response.token, request_id: 2}});
  const released = await again.message();
  check('a release', released.message === 'released', released);
  again.call.write({close: {}});
  check('a close ends the stream well', (await again.next()).end === true);
}

async function testWatch(client, session) {
  const watch = new Stream(client.Watch({name: 'watched/', is_prefix: true}));
  await watch.message(); // it has begun
  const {token} = await want(client, 'Acquire', {session_id: session, name: 'watched/1'});
  let heard;
  do {
    heard = JSON.stringify(await watch.message());
  } while (!heard.includes('watched/1'));
  check('a watch hears a grant', heard.includes(`"${token}"`), heard);
  watch.call.cancel();
}

run(async () => {
  const client = connect(addresses[0]), other = connect(addresses[1]);
  const session = await testUnary(client, other);
  await testErrors(client, session);
  await testStream(client);
  await testWatch(other, session);
  client.close();
  other.close();
});
