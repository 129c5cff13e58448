#!/usr/bin/env node
// Random envelopes, spelt in every way that JSON allows, through Node's own JSON.stringify and
// crypto and through ours: scripts/compare-with-node.mjs [COUNT] [SEED]
// Some are made ambiguous or broken on purpose; those must be refused.
import { spawn, execFileSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";

const count = Number(process.argv[2] ?? 100000);
let seed = Number(process.argv[3] ?? Date.now() % 2 ** 32) >>> 0;
const firstSeed = seed;

const MEMBERS = ["version", "kind", "messageId", "correlationId", "causedBy", "from", "to",
  "capability", "replyTo", "deadline", "tenantId", "headers", "payload"];
const SECRET = "correct horse battery staple ☃";

// mulberry32: small, seeded, good enough to draw cases with
function random() {
  seed = (seed + 0x6d2b79f5) >>> 0;
  let t = seed;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const chance = (p) => random() < p;
const blank = () => (chance(0.1) ? pick([" ", "\n", "\t", "\r\n", "  "]) : "");

const ALPHABET = [..."abcXYZ019 _-./\\\"'\b\f\n\r\t\0\u001f\u007f\u2028\u2029éß漢😀\uffff\ufffe"];
function text(max = 12) {
  return Array.from({ length: below(max) }, () => pick(ALPHABET)).join("");
}
const nonEmpty = () => text() || "x";

// A string in a random spelling.
function spell(value) {
  let out = '"';
  for (const c of value) {
    const must = c < " " || c === '"' || c === "\\";
    const short = { '"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" }[c];
    if (short && (chance(0.5) || (must && chance(0.5)))) out += short;
    else if (must || chance(0.08)) {
      for (let i = 0; i < c.length; i++) {
        const hex = c.charCodeAt(i).toString(16).padStart(4, "0");
        out += "\\u" + (chance(0.5) ? hex.toUpperCase() : hex);
      }
    } else out += c;
  }
  return out + '"';
}

function digits(max) {
  return Array.from({ length: 1 + below(max) }, () => below(10)).join("");
}
// A number in a random spelling; whether two peers would read it alike.
function number() {
  let whole = chance(0.3) ? "0" : digits(chance(0.1) ? 24 : 9).replace(/^0+(?=.)/, "");
  let spelt = (chance(0.3) ? "-" : "") + whole;
  let exponent = false;
  const fraction = chance(0.4);
  if (fraction) spelt += "." + digits(chance(0.1) ? 20 : 6);
  if (chance(0.25)) {
    exponent = true;
    spelt += pick(["e", "E"]) + pick(["", "+", "-"]) + (chance(0.05) ? digits(3) : digits(2));
  }
  const value = Number(spelt);
  const ambiguous = !Number.isFinite(value)
    || (!fraction && !exponent && spelt !== "-0" && String(value) !== spelt);
  return [spelt, ambiguous];
}

function key() {
  if (chance(0.3)) return pick(["0", "1", "2", "7", "10", "01", "-1", "1.5", "4294967294", "4294967295", String(below(5e9))]);
  return chance(0.1) ? "__proto__" : text(10);
}

let ambiguous = false;
function value(depth = 0) {
  const kind = below(depth > 4 ? 4 : 7);
  if (kind === 0) return pick(["null", "true", "false"]);
  if (kind === 1 || kind === 2) {
    const [spelt, wrong] = number();
    if (wrong && !chance(0.05)) return "7";
    ambiguous ||= wrong;
    return spelt;
  }
  if (kind === 3) {
    if (chance(0.002)) { ambiguous = true; return '"\\ud83d x"'; }
    return spell(text(30));
  }
  if (kind === 4) return "[" + Array.from({ length: below(5) }, () => blank() + value(depth + 1) + blank()).join(",") + "]";
  return object(() => value(depth + 1));
}
function object(inner, names = key) {
  const seen = new Set();
  const entries = [];
  const size = chance(0.05) ? 20 + below(40) : below(7);
  for (let i = 0; i < size; i++) {
    const name = names();
    if (seen.has(name)) {
      if (!chance(0.02)) continue;
      ambiguous = true;
    }
    seen.add(name);
    entries.push(blank() + spell(name) + blank() + ":" + blank() + inner() + blank());
  }
  return "{" + entries.join(",") + "}";
}

function envelope() {
  ambiguous = false;
  const name = () => "agent://" + (text().replace(/[\r\n\u2028\u2029]/g, "") || "a");
  const members = {
    version: pick(["1", "1.0", "1e0", "1"]),
    kind: spell(pick(["request", "response", "event"])),
    messageId: spell(nonEmpty()), correlationId: spell(nonEmpty()),
    from: spell(name()), to: spell(name()), capability: spell(nonEmpty()),
  };
  if (chance(0.5)) members.causedBy = spell(nonEmpty());
  if (chance(0.5)) members.replyTo = spell(pick(["kafka", "nats", "sqs", "amqp", "mqtt", "memory"]) + "://" + nonEmpty());
  if (chance(0.5)) members.deadline = pick([String(1 + below(2 ** 31)), "1767225600000", "1.7672256e12", "9007199254740991", "17672256e5", "1767225600000.0"]);
  if (chance(0.5)) members.tenantId = spell(nonEmpty());
  if (chance(0.5)) members.headers = object(() => spell(text()), () => { const k = key(); return k === "__proto__" ? "proto" : k; });
  if (chance(0.95)) members.payload = value();
  if (chance(0.5)) members.auth = pick(['{"kind":"internal"}', '{"kind":"hmac","keyId":"k","signature":"x","more":[1]}', '{"token":"t","kind":"oidc"}']);
  const order = Object.keys(members);
  if (chance(0.5)) order.sort(() => random() - 0.5);
  const wire = blank() + "{" + order.map((n) => blank() + spell(n) + blank() + ":" + blank() + members[n] + blank()).join(",") + "}" + blank();
  if (ambiguous) return [wire, "ambiguous"];
  if (chance(0.02)) return [wire.slice(0, below(wire.length - 1)).toWellFormed(), "refused"];
  const parsed = JSON.parse(wire);
  const form = {};
  for (const member of MEMBERS) if (member in parsed) form[member] = parsed[member];
  const canonical = JSON.stringify(form);
  return [wire, createHmac("sha256", SECRET).update(canonical).digest("hex") + " " + canonical];
}

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
execFileSync("cargo", ["build", "--quiet", "--release", "--locked", "-p", "agent-rpc-core", "--example", "canonical_lines"], { cwd: root, stdio: "inherit" });
const ours = spawn(join(root, "target/release/examples/canonical_lines"), { stdio: ["pipe", "pipe", "inherit"] });
const lines = createInterface({ input: ours.stdout })[Symbol.asyncIterator]();

const tally = { canonical: 0, ambiguous: 0, refused: 0 };
let done = 0;
while (done < count) {
  const batch = Array.from({ length: Math.min(500, count - done) }, envelope);
  ours.stdin.write(batch.map(([wire]) => JSON.stringify(wire) + "\n").join(""));
  for (const [wire, expected] of batch) {
    const { value: line } = await lines.next();
    const answer = line === undefined ? "(it ended)" : JSON.parse(line);
    if (answer !== expected) {
      console.error(`seed ${firstSeed}, envelope ${done}:\nwire   ${JSON.stringify(wire)}\nnode   ${expected}\nours   ${answer}`);
      process.exit(1);
    }
    tally[expected in tally ? expected : "canonical"]++;
    done++;
  }
  if (process.stderr.isTTY) process.stderr.write(`\r${done} of ${count}`);
}
ours.stdin.end();
if (process.stderr.isTTY) process.stderr.write("\r");
console.log(`${done} envelopes agree with Node ${process.version}, seed ${firstSeed}: ${tally.canonical} canonical, ${tally.ambiguous} ambiguous and ${tally.refused} broken ones refused`);
