"""A Deadman worker in Python, with the standard library only.

    DEADMAN_URL=http://127.0.0.1:8080 python3 docs/examples/worker.py

Several servers may be named, with commas between: when one stops, the worker goes on at the next. SIGTERM drains it: it
claims nothing further, lets what runs finish, and hands back the rest. docs/http-workers.md explains the protocol.
"""

import json, os, signal, sys, threading, time, urllib.error, urllib.request, uuid

URLS = os.environ.get("DEADMAN_URL", "http://127.0.0.1:8080").split(",")
TOKEN = os.environ.get("DEADMAN_API_TOKEN")
NAME = os.environ.get("DEADMAN_WORKER_NAME", "python-" + uuid.uuid4().hex[:8])
SLOTS = int(os.environ.get("DEADMAN_WORKER_THREADS", "4"))
LEASE_MS = int(os.environ.get("DEADMAN_LEASE_MS", "30000"))
DRAIN_MS = int(os.environ.get("DEADMAN_DRAIN_MS", "10000"))


class Reject(Exception):
    """Raised by a handler: do not retry this job."""


class Stopped(Exception):
    """Raised by a handler that was told to stop."""


def sleep(payload, run):
    """Sleeps for so many milliseconds, and heeds being told to stop."""
    if run.stop.wait(float(payload) / 1000):
        raise Stopped()
    return {"slept_ms": payload, "key": run.job["effect_key"]}


def fail(payload, run):
    raise ValueError(f"told to fail: {payload}")


HANDLERS = {"py-sleep": sleep, "py-fail": fail}


class Run:
    """One claim: a job, the epoch and lease that fence it, and the flag that interrupts its handler."""

    def __init__(self, job, epoch, lease):
        self.job, self.epoch, self.lease = job, epoch, lease
        self.stop = threading.Event()
        self.why = None  # "lost": record nothing; "timeout": a failure; "drain": hand it back
        self.ends_at = time.monotonic() + job["timeout_ms"] / 1000 if job["timeout_ms"] else None

    def interrupt(self, why):
        self.why = self.why or why
        self.stop.set()


class Worker:
    def __init__(self):
        self.runs, self.confirmed = set(), {}  # leases: when their last confirmed request was sent
        self.lock, self.freed = threading.Lock(), threading.Condition()
        self.draining = threading.Event()

    def post(self, path, body, timeout):
        """One request, at the first server that answers; None if none does."""
        for url in list(URLS):
            request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            if TOKEN:
                request.add_header("Authorization", "Bearer " + TOKEN)
            try:
                with urllib.request.urlopen(request, timeout=timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code < 500:  # our own mistake: asking again would not help
                    raise RuntimeError(error.read().decode()) from error
            except (OSError, ValueError):
                pass
            if URLS[0] == url:  # it stops, is away, or cannot reach its database
                URLS.append(URLS.pop(0))
        return None

    def claim(self):
        while not self.draining.is_set():
            with self.freed:
                free = SLOTS - len(self.runs)
                if free <= 0:
                    self.freed.wait(1)
                    continue
            lease = str(uuid.uuid4())  # kept until an answer comes: a repeat answers what was already taken
            answer = None
            while answer is None:
                ask = {"worker": NAME, "lease": lease, "lease_ms": LEASE_MS, "types": list(HANDLERS), "limit": free, "wait_ms": 5000}
                answer = self.post("/workers/claims", ask, 15)
                if answer is None:
                    if self.draining.wait(0.5):
                        return  # what was perhaps taken lapses with its lease
            with self.lock:
                runs = [Run(one["job"], one["epoch"], lease) for one in answer["claims"]]
                self.runs.update(runs)
                if runs:  # how long the answer was under way is not known: renewed at once, and trusted for less
                    self.confirmed[lease] = time.monotonic() - LEASE_MS / 5000
            for run in runs:
                if self.draining.is_set():
                    run.interrupt("drain")
                threading.Thread(target=self.run, args=(run,), daemon=True).start()

    def run(self, run):
        try:
            outcome = {"kind": "completed", "result": HANDLERS[run.job["type"]](run.job["payload"], run)}
        except Reject as error:
            outcome = {"kind": "rejected", "error": {"name": "Reject", "message": str(error)}}
        except Exception as error:  # whatever a handler raises is a failed attempt
            outcome = {"kind": "failed", "error": {"name": type(error).__name__, "message": str(error)}}
        if run.why == "timeout":
            outcome = {"kind": "failed", "error": {"name": "Timeout", "message": f"not ended within {run.job['timeout_ms']} ms"}}
        elif run.why == "drain" and outcome["kind"] == "failed":
            outcome = {"kind": "released"}
        if run.why != "lost":
            self.settle({"id": run.job["id"], "epoch": run.epoch, "lease": run.lease, **outcome})
        with self.lock:
            self.runs.discard(run)
            if not any(other.lease == run.lease for other in self.runs):
                self.confirmed.pop(run.lease, None)
        with self.freed:
            self.freed.notify_all()

    def settle(self, outcome):
        """Until it is on record or refused for good: a repeat is known by its claim."""
        while True:
            answer = self.post("/workers/outcomes", {"outcomes": [outcome]}, 10)
            if answer is not None and not answer["undecided"]:
                return
            time.sleep(0.5)

    def beat(self):
        """Renews the leases every fifth of their length, and interrupts what is not ours any more."""
        while True:
            time.sleep(min(LEASE_MS / 5000, 1))
            now = time.monotonic()
            with self.lock:
                late = [run for run in self.runs if run.ends_at and now >= run.ends_at]
                # Past its length a lease is never renewed: somebody else may run its jobs.
                over = {lease for lease, at in self.confirmed.items() if now - at >= LEASE_MS / 1000}
                due = [lease for lease, at in self.confirmed.items() if now - at >= LEASE_MS / 5000 and lease not in over]
            for run in late:
                run.interrupt("timeout")
            if due:
                answer = self.post("/workers/heartbeats", {"worker": NAME, "leases": due}, 5)
                if answer is not None:
                    with self.lock:
                        self.confirmed.update({lease: now for lease in answer["held"] if lease in self.confirmed})
                    over |= set(answer["lost"])
                    revoked = {(one["id"], one["epoch"]) for one in answer["revoked"]}
                    self.interrupt(lambda run: (run.job["id"], run.epoch) in revoked, "lost")
            self.interrupt(lambda run: run.lease in over, "lost")

    def interrupt(self, which, why):
        with self.lock:
            runs = [run for run in self.runs if which(run)]
        for run in runs:
            run.interrupt(why)

    def idle(self, seconds):
        with self.freed:
            return self.freed.wait_for(lambda: not self.runs, seconds)


def main():
    worker = Worker()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.draining.set())
    # A loop that breaks is a defect: better no worker than one that claims and never renews.
    threading.excepthook = lambda told: (sys.__excepthook__(*told[:3]), os._exit(1))
    claiming, beating = (threading.Thread(target=loop, daemon=True) for loop in (worker.claim, worker.beat))
    claiming.start(), beating.start()
    print(f"{NAME} works for {', '.join(URLS)}", flush=True)
    worker.draining.wait()
    claiming.join(6)  # its last claim may bring something
    if not worker.idle(DRAIN_MS / 1000):
        worker.interrupt(lambda run: True, "drain")
        worker.idle(5)
    print(f"{NAME} stopped", flush=True)


if __name__ == "__main__":
    sys.exit(main())
