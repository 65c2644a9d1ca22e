"""redis-py's own lock, and pottery's Redlock. How the runner talks with it: see ../README.md.

One at a time they are used blocking; many at a time, on asyncio.
"""

import asyncio
import json
import logging
import os
import random
import resource
import sys
import time

import pottery
import redis
import redis.asyncio

TTL = 10


def parse(words):
    return dict(word.split("=", 1) for word in words)


args = parse(sys.argv[1:])
urls = args["nodes"].split(",")
# What goes wrong is counted; a peer that logs every failed node would measure its log.
logging.disable(logging.CRITICAL)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Failures:
    def __init__(self):
        self.count, self.first = 0, None

    def add(self, error):
        self.count += 1
        self.first = self.first or f"{type(error).__name__}: {error}"


class Blocking:
    """One at a time."""

    def __init__(self):
        self.clients = [redis.Redis.from_url(url) for url in urls]

    def cycle(self, name):
        if args["system"] == "redis-py":
            lock = self.clients[0].lock(name, timeout=TTL)
        else:
            lock = pottery.Redlock(key=name, masters=self.clients, auto_release_time=TTL)
        if not lock.acquire(blocking=False):
            raise RuntimeError("not acquired")
        lock.release()


class Asyncio:
    """Many at a time."""

    def __init__(self):
        # The default pool fails where more than its connections are wanted; this one waits.
        pool = redis.asyncio.BlockingConnectionPool.from_url
        self.clients = [redis.asyncio.Redis(connection_pool=pool(url, timeout=20)) for url in urls]

    def lock(self, name):
        if args["system"] == "redis-py":
            return self.clients[0].lock(name, timeout=TTL, thread_local=False)
        return pottery.AIORedlock(key=name, masters=self.clients, auto_release_time=TTL)

    async def cycle(self, name):
        lock = self.lock(name)
        if not await lock.acquire(blocking=False):
            raise RuntimeError("not acquired")
        await lock.release()

    async def wait(self, name, seconds):
        """The lock, or None if the time is up."""
        lock = self.lock(name)
        if args["system"] == "redis-py":
            acquired = await lock.acquire(blocking_timeout=seconds)
        else:
            acquired = await lock.acquire(timeout=seconds)
        return lock if acquired else None


def cycle_report(samples, seconds, cpu, failures):
    samples.sort()
    at = lambda quantile: samples[int((len(samples) - 1) * quantile)] / 1e3 if samples else 0
    return {
        "cycles": len(samples),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "failed": failures.count,
        "error": failures.first,
    }


def cycle_one_at_a_time(system, prefix, count, seconds):
    samples, failures = [], Failures()
    cpu, start = cpu_seconds(), time.monotonic()
    serial = 0
    while serial < count and time.monotonic() < start + seconds:
        begun = time.monotonic_ns()
        try:
            system.cycle(f"{prefix}/{serial}")
            samples.append(time.monotonic_ns() - begun)
        except Exception as error:
            failures.add(error)
        serial += 1
    took, cpu = time.monotonic() - start, cpu_seconds() - cpu
    return cycle_report(samples, took, cpu, failures)


async def cycle(system, prefix, concurrency, count, seconds):
    samples, failures, begun = [], Failures(), 0
    cpu, start = cpu_seconds(), time.monotonic()

    async def worker(index):
        nonlocal begun
        serial = 0
        while begun < count and time.monotonic() < start + seconds:
            begun += 1
            from_ns = time.monotonic_ns()
            try:
                await system.cycle(f"{prefix}/{index}/{serial}")
                samples.append(time.monotonic_ns() - from_ns)
            except Exception as error:
                failures.add(error)
            serial += 1

    await asyncio.gather(*(worker(index) for index in range(concurrency)))
    took, cpu = time.monotonic() - start, cpu_seconds() - cpu
    return cycle_report(samples, took, cpu, failures)


async def contend(system, here):
    name, first, waiters = here["name"], int(here["first"]), int(here["waiters"])
    hold, from_ns, to_ns = int(here["hold_us"]) / 1e6, int(here["from_ns"]), int(here["to_ns"])
    turns, failures = [], Failures()
    cpu = cpu_seconds()

    async def one(waiter):
        await asyncio.sleep((from_ns - time.monotonic_ns()) / 1e9)
        while True:
            await asyncio.sleep(0.0025 + 0.005 * random.random())
            asked = time.monotonic_ns()
            if asked >= to_ns:
                return
            turn = [waiter, asked, 0, 0]
            try:
                lock = await system.wait(name, (to_ns - asked) / 1e9)
                if lock:
                    turn[2] = time.monotonic_ns()
                    await asyncio.sleep(hold)
                    turn[3] = time.monotonic_ns()
                    await lock.release()
            except Exception as error:
                failures.add(error)
            turns.append(turn)

    await asyncio.gather(*(one(first + index) for index in range(waiters)))
    return {
        "turns": turns,
        "cpu_seconds": cpu_seconds() - cpu,
        "failed": failures.count,
        "error": failures.first,
    }


def main():
    blocking, system = Blocking(), None
    first = cycle_one_at_a_time(blocking, f"bench/ready/{os.getpid()}", 1, 60)
    if first["error"]:
        raise SystemExit(f"the first lock: {first['error']}")
    print("ready", flush=True)
    loop = asyncio.new_event_loop()
    for line in sys.stdin:
        here = parse(line.split()[1:])
        # Connections belong to the loop that made them.
        system = system or Asyncio()
        if here["workload"] == "contend":
            report = loop.run_until_complete(contend(system, here))
        else:
            name, count, seconds = here["name"], int(here["count"]), float(here["seconds"])
            concurrency = int(here["concurrency"])
            if concurrency == 1:
                report = cycle_one_at_a_time(blocking, name, count, seconds)
            else:
                round_ = cycle(system, name, concurrency, count, seconds)
                report = loop.run_until_complete(round_)
        print(json.dumps(report), flush=True)


main()
