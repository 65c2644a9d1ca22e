"""Drives redlock-py line by line, for foreign_client.rs.

Usage: foreign_client.py URL...

    lock NAME TTL_MS     answers "locked" or "refused": one attempt, no waiting
    unlock NAME          answers "unlocked" with the token of the last lock of that name, whether
                         it is still held or not; the library does not tell whether it worked
    unlock-guess NAME    the same with a token that was never stored
    quit
"""

import sys

from redlock import Lock, Redlock


def main(urls):
    client = Redlock(urls, retry_count=1, retry_delay=0.001)
    locks = {}
    for line in sys.stdin:
        verb, *args = line.split()
        if verb == "quit":
            return
        if verb == "lock":
            name, ttl = args
            lock = client.lock(name, int(ttl))
            if lock:
                locks[name] = lock
            answer = "locked" if lock else "refused"
        elif verb == "unlock":
            client.unlock(locks[args[0]])
            answer = "unlocked"
        elif verb == "unlock-guess":
            client.unlock(Lock(0, args[0], client.get_unique_id()))
            answer = "unlocked"
        else:
            raise SystemExit(f"no such verb: {verb}")
        print(answer, flush=True)


main(sys.argv[1:])
