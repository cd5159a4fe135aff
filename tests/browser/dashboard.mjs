// The dashboard in a real browser, against a real cluster. SCREENSHOTS=DIR keeps what it looked like.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PATIENCE = 30000;
const TOOL = process.env.FENCELOCK_TOOL;
const HOSTILE = "hostile/<img src=x onerror=window.broken=1>&\"'";

async function startCluster() {
  const child = spawn(TOOL, ["dev", "--nodes", "3", "--port", "0", "--json"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await Promise.race([createInterface({ input: child.stdout })[Symbol.asyncIterator]().next().then((r) => [r.value]),
    new Promise((_, fail) => child.once("exit", (code) => fail(new Error(`the cluster did not come up: ${code}`))))]);
  return { child, ...JSON.parse(line) };
}

async function call(origin, name, body) {
  const response = await fetch(`${origin}/v1/${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const document = await response.json();
  assert.equal(response.status, 200, JSON.stringify(document));
  return document;
}

const open = async (origin, client) => (await call(origin, "LockService/OpenSession", { client, ttl_ms: 600000 })).session_id;
const acquire = (origin, session_id, name, more = {}) => call(origin, "LockService/Acquire", { session_id, name, ...more });

// What the pages show: holders under folders, a queue, two that wait in a circle, a name that is not harmless.
async function fill(origin) {
  const one = await open(origin, "settler-eu-1"), two = await open(origin, "settler-eu-2"), queue = await open(origin, "reporting");
  for (let i = 0; i < 12; i++) await acquire(origin, one, `invoice/eu/INV-${55100 + i}`);
  for (let i = 0; i < 4; i++) await acquire(origin, two, `invoice/us/INV-${8100 + i}`);
  await acquire(origin, two, HOSTILE);
  await acquire(origin, one, "ledger/a");
  await acquire(origin, two, "ledger/b");
  const waits = [acquire(origin, one, "ledger/b", { wait_ms: 600000 }), acquire(origin, two, "ledger/a", { wait_ms: 600000 }),
    acquire(origin, queue, "invoice/eu/INV-55100", { wait_ms: 600000 })];
  return { one, two, queue, waits: waits.map((w) => w.catch((error) => ({ granted: String(error) }))) };
}

// Traffic until told to stop: one hot name, taken in turn by four.
function traffic(origin) {
  let going = true;
  const worker = async (i) => {
    const session = await open(origin, `payout-worker-${i}`);
    while (going) {
      const granted = await acquire(origin, session, "payout/hot", { wait_ms: 2000 });
      if (granted.granted) await call(origin, "LockService/Release", { session_id: session, name: "payout/hot", token: granted.token });
    }
  };
  const workers = [0, 1, 2, 3].map((i) => worker(i).catch((error) => { if (going) console.log(`traffic: ${error}`); }));
  return async () => { going = false; await Promise.all(workers); };
}

async function shoot(page, name) {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png`, fullPage: true });
}

const text = (page, selector = "main") => page.locator(selector).innerText();
const sees = (page, what, selector = "main") => page.locator(selector).getByText(what).first().waitFor({ timeout: PATIENCE });

// Not the browser's own way to wait: the page's policy forbids it to evaluate texts.
async function until(condition, what) {
  for (const end = Date.now() + PATIENCE; !(await condition()); await new Promise((go) => setTimeout(go, 50)))
    if (Date.now() > end) throw new Error(`waited for ${what}`);
}

async function fits(page) {
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "the page is wider than the screen");
}

// --- Stories ---

async function overviewShowsTheClusterAtAGlance(page) {
  await sees(page, /node [123] leads/, "#leader");
  await sees(page, "Busiest names");
  await sees(page, "payout/hot");
  await until(() => page.evaluate(() => [...document.querySelectorAll(".plot .line0")].some((p) => p.getAttribute("d").split("L").length > 3)), "a line");
  const told = await text(page);
  assert.match(told, /Sessions\s+7/);
  assert.equal(await page.locator("section", { hasText: "Nodes" }).last().locator("tbody tr").count(), 3);
  await fits(page);
}

async function aCircleIsNamed(page) {
  await sees(page, /settler-eu-\d waits for ledger\/[ab], held by settler-eu-\d waits for ledger\/[ab]/, "#notices");
}

async function namesCanBeDrilledInto(page) {
  await page.getByRole("link", { name: "Names" }).click();
  await page.getByRole("button", { name: "invoice/", exact: true }).click();
  await page.getByRole("button", { name: "invoice/eu/", exact: true }).click();
  await sees(page, "invoice/eu/INV-55111");
  await until(async () => !(await text(page)).includes("invoice/us/"), "that folder alone");
  await page.getByRole("button", { name: "invoice/eu/INV-55100" }).click();
  await sees(page, "settler-eu-1", "#described");
  await sees(page, "reporting", "#described");
  await fits(page);
}

async function aNameIsOnlyEverText(page) {
  await page.getByLabel("Prefix").fill("hostile/");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByRole("button", { name: HOSTILE }).click();
  await sees(page, "settler-eu-2", "#described");
  assert.equal(await page.evaluate(() => window.broken), undefined);
}

async function aNameIsTakenOnlyWithAReason(page, sessions) {
  await page.getByLabel("Prefix").fill("invoice/eu/");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByRole("button", { name: "invoice/eu/INV-55100" }).click();
  await page.getByRole("button", { name: "Force release" }).click();
  await page.getByLabel("Who you are").fill("operator");
  await page.locator("dialog").getByRole("button", { name: "Force release" }).click();
  await sees(page, "and why", "dialog");
  await page.getByLabel("Reason").fill("its host is gone");
  await shoot(page, "dialog");
  await page.locator("dialog").getByRole("button", { name: "Force release" }).click();
  assert.equal((await sessions.waits[2]).granted, true);
  await until(async () => !(await text(page, "#described")).includes("settler-eu-1"), "the new holder");
  assert.match(await text(page, "#described"), /reporting/);
}

async function waitsAreShown(page) {
  await page.getByRole("link", { name: "Waits" }).click();
  await sees(page, "In a circle");
  await sees(page, "ledger/a");
  await fits(page);
}

async function aSessionIsEnded(page, sessions) {
  await page.getByRole("link", { name: "Sessions" }).click();
  await page.locator("tr", { hasText: "settler-eu-2" }).getByRole("button", { name: "End" }).click();
  await page.getByLabel("Reason").fill("it waits in a circle");
  await page.getByRole("button", { name: "End session" }).click();
  await page.locator("tr", { hasText: "settler-eu-2" }).waitFor({ state: "detached", timeout: PATIENCE });
  assert.equal((await sessions.waits[0]).granted, true);
  await page.locator("#notices .notice").waitFor({ state: "detached", timeout: PATIENCE });
}

async function lossIsTold(page, cluster, own) {
  await page.getByRole("link", { name: "Overview" }).click();
  await sees(page, "Grants a second");
  for (const node of cluster.nodes) if (node !== own) process.kill(node.pid, "SIGKILL");
  await sees(page, "No leader can be reached", "#notices");
  await shoot(page, "no-leader");
  process.kill(own.pid, "SIGKILL");
  await sees(page, "does not answer", "#notices");
}

// --- The run ---

async function main() {
  const cluster = await startCluster(), own = cluster.nodes[0], origin = `http://${own.http}`;
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
  const complaints = [];
  const desktop = await (await browser.newContext({ viewport: { width: 1280, height: 860 } })).newPage();
  const phone = await (await browser.newContext({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme: "dark" })).newPage();
  for (const page of [desktop, phone]) {
    page.on("console", (m) => { if (m.type() === "error" && page.isOurs !== false) complaints.push(m.text()); });
    page.on("pageerror", (e) => complaints.push(String(e)));
    page.on("request", (r) => { if (!r.url().startsWith(origin)) complaints.push(`asked elsewhere: ${r.url()}`); });
  }
  try {
    const sessions = await fill(origin), stop = traffic(origin);
    await desktop.goto(origin);
    await phone.goto(origin);
    for (const story of [overviewShowsTheClusterAtAGlance, aCircleIsNamed]) {
      await story(desktop);
      await story(phone);
      console.log(`ok ${story.name}`);
    }
    if (process.env.SCREENSHOTS) await desktop.waitForTimeout(14000); // plots that show something
    for (const [page, name] of [[desktop, "desktop"], [phone, "phone-dark"]]) await shoot(page, `overview-${name}`);
    await desktop.emulateMedia({ colorScheme: "dark" });
    await shoot(desktop, "overview-desktop-dark");
    await desktop.emulateMedia({ colorScheme: "light" });
    await stop();
    await namesCanBeDrilledInto(phone);
    await shoot(phone, "names-phone-dark");
    await namesCanBeDrilledInto(desktop);
    await shoot(desktop, "names-desktop");
    await aNameIsOnlyEverText(desktop);
    await waitsAreShown(phone);
    await waitsAreShown(desktop);
    await shoot(desktop, "waits-desktop");
    await aNameIsTakenOnlyWithAReason(await back(desktop), sessions);
    await phone.getByRole("link", { name: "Sessions" }).click();
    await sees(phone, "settler-eu-1");
    await fits(phone);
    await shoot(phone, "sessions-phone-dark");
    await aSessionIsEnded(desktop, sessions);
    await shoot(desktop, "sessions-desktop");
    assert.deepEqual(complaints, []);
    desktop.isOurs = phone.isOurs = false; // from here on calls fail, and the browser says so
    await phone.close();
    await lossIsTold(desktop, cluster, own);
    await shoot(desktop, "no-answer");
    console.log("ok all stories");
  } finally {
    await browser.close();
    cluster.child.kill("SIGTERM");
    await new Promise((done) => cluster.child.once("exit", done));
  }
}

async function back(page) {
  await page.getByRole("link", { name: "Names" }).click();
  return page;
}

await main();
