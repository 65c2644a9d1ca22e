// redlock and redis-semaphore, both on ioredis. How the runner talks with it: see ../README.md.
'use strict';

const readline = require('node:readline');
const Redis = require('ioredis');
const Redlock = require('redlock');
const { Mutex, RedlockMutex } = require('redis-semaphore');

const TTL_MS = 10_000;

const parse = (words) => Object.fromEntries(words.map((word) => {
  const at = word.indexOf('=');
  return [word.slice(0, at), word.slice(at + 1)];
}));
const args = parse(process.argv.slice(2));
const clients = args.nodes.split(',').map((url) => new Redis(url));
// A node that is away is what some workloads are about; the locks themselves tell of it.
for (const client of clients) client.on('error', () => {});

// Each gives a function that releases.
const systems = {
  'node-redlock': () => {
    const redlock = new Redlock(clients, { retryCount: 0 });
    redlock.on('clientError', () => {});
    const lock = async (name, options) => {
      const held = await redlock.acquireWithOptions(name, TTL_MS, options);
      return () => held.unlock();
    };
    // It knows no end but a number of attempts: as many as fit into the time, with its default delay.
    const wait = (name, ms) => lock(name, { retryCount: Math.ceil(ms / 200), retryDelay: 200, retryJitter: 100 });
    return { tryLock: (name) => lock(name, {}), wait };
  },
  'redis-semaphore': () => {
    const lock = async (name, options) => {
      options = { lockTimeout: TTL_MS, ...options };
      const mutex = clients.length === 1
        ? new Mutex(clients[0], name, options)
        : new RedlockMutex(clients, name, options);
      await mutex.acquire();
      return () => mutex.release();
    };
    return {
      tryLock: (name) => lock(name, { acquireAttemptsLimit: 1 }),
      wait: (name, ms) => lock(name, { acquireTimeout: ms }),
    };
  },
};

const nowNs = () => process.hrtime.bigint();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

class Failures {
  failed = 0;
  error = null;
  add(error) {
    this.failed += 1;
    this.error ??= String(error.message ?? error);
  }
}

async function cycle(system, { name, ...numbers }) {
  const [concurrency, count, seconds] = [numbers.concurrency, numbers.count, numbers.seconds].map(Number);
  const failures = new Failures();
  const samples = [];
  let begun = 0;
  const cpu = cpuSeconds();
  const start = nowNs();
  const end = start + BigInt(Math.round(seconds * 1e9));
  const worker = async (index) => {
    for (let serial = 0; nowNs() < end && begun++ < count; serial++) {
      const from = nowNs();
      try {
        const release = await system.tryLock(`${name}/${index}/${serial}`);
        await release();
        samples.push(Number(nowNs() - from) / 1e3);
      } catch (error) {
        failures.add(error);
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, (_, index) => worker(index)));
  const report = {
    cycles: samples.length,
    seconds: Number(nowNs() - start) / 1e9,
    cpu_seconds: cpuSeconds() - cpu,
  };
  samples.sort((a, b) => a - b);
  const at = (quantile) => samples[Math.floor((samples.length - 1) * quantile)] ?? 0;
  return { ...report, p50_us: at(0.5), p99_us: at(0.99), failed: failures.failed, error: failures.error };
}

async function contend(system, { name, ...numbers }) {
  const [first, waiters, holdUs] = [numbers.first, numbers.waiters, numbers.hold_us].map(Number);
  const [from, to] = [BigInt(numbers.from_ns), BigInt(numbers.to_ns)];
  const failures = new Failures();
  const turns = [];
  const cpu = cpuSeconds();
  const one = async (waiter) => {
    await sleep(Number(from - nowNs()) / 1e6);
    for (;;) {
      await sleep(2.5 + 5 * Math.random());
      const asked = nowNs();
      if (asked >= to) return;
      const turn = [waiter, Number(asked), 0, 0];
      try {
        const release = await system.wait(name, Number(to - asked) / 1e6);
        turn[2] = Number(nowNs());
        await sleep(holdUs / 1e3);
        turn[3] = Number(nowNs());
        await release();
      } catch (error) {
        // Whoever gets nothing by the end has waited in vain, and that is no failure.
        if (turn[2] > 0 || nowNs() < to - 500_000_000n) failures.add(error);
      }
      turns.push(turn);
    }
  };
  await Promise.all(Array.from({ length: waiters }, (_, index) => one(first + index)));
  return { turns, cpu_seconds: cpuSeconds() - cpu, failed: failures.failed, error: failures.error };
}

async function main() {
  const system = systems[args.system]();
  const first = await cycle(system, { name: `bench/ready/${process.pid}`, concurrency: 1, count: 1, seconds: 60 });
  if (first.error) throw new Error(`the first lock: ${first.error}`);
  console.log('ready');
  const workloads = { cycle, contend };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const round = parse(line.split(' ').slice(1));
    console.log(JSON.stringify(await workloads[round.workload](system, round)));
  }
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
