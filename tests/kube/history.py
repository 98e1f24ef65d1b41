#!/usr/bin/env python3
"""history.py - checks what controllers did to Pods, as a history of events tells it: no duplicate, no orphan, no act
without a term.

    tests/kube/history.py FILE ...     checks histories of one JSON object a line
    tests/kube/history.py --planted    checks that every wrong history below is found, and no right one

An event has `at`, a date in seconds, and `what`:

    term, over       `by` has begun, has ended a term of `epoch` (a controller's log)
    launch           `by` has written down an intent `pod` (a controller's log)
    create, delete   the API server has carried out `by`'s call for `pod` (its audit log); `uid` tells two calls apart
    down, up         the API server, or the store without which nobody leads, is away, is back
    seen             at once: the `pods` that run and are not being deleted, and the `intents` that want one

Each rule is a function of its own; check() returns sentences, one a breach. It is pure: nothing is read or started here.
"""
import json
import sys

LATE_S = 1  # of a call on its way to the API server; who leads next begins only where nothing was heard for so long
GRACE_S = 60  # a Pod without an intent, or the reverse, may last so long, in time of an API server that answers


def of(history, *kinds):
    return [e for e in history if e["what"] in kinds]


def one_pod_an_intent(history):
    """No name is created twice: an intent's id is the name of its Pod."""
    first = {}
    for event in of(history, "create"):
        before = first.setdefault(event["pod"], event)
        if before is not event:
            yield f"{event['pod']} was created twice: {before['uid']} at {before['at']}, {event['uid']} at {event['at']}"


def written_first(history):
    """A Pod is created only for an intent that was written down before."""
    launched = set()
    for event in history:
        if event["what"] == "launch":
            launched.add(event["pod"])
        elif event["what"] == "create" and event["pod"] not in launched:
            yield f"{event['by']} created {event['pod']} at {event['at']} without an intent"


def only_the_leader_acts(history):
    """A write is by the controller whose term has the highest epoch of those that have begun, and is not over. A call that
    was made within the term may arrive LATE_S after it, before anybody else's term."""
    leader, epoch, over = None, 0, 0.0
    for event in history:
        if event["what"] == "term" and event["epoch"] > epoch:
            leader, epoch, over = event["by"], event["epoch"], None
        elif event["what"] == "over" and event["epoch"] == epoch:
            over = event["at"]
        elif event["what"] in ("launch", "create", "delete"):
            late_s = LATE_S if event["what"] != "launch" else 0
            if event["by"] != leader or (over is not None and event["at"] - over > late_s):
                whose = f"{leader}'s term {epoch} " + ("ran" if over is None else f"was over since {over}")
                yield f"{event['by']}: {event['what']} of {event['pod']} at {event['at']}, when {whose}"


def epochs_rise(history):
    """A term's epoch is higher than those of all terms before it."""
    highest = 0
    for event in of(history, "term"):
        if event["epoch"] <= highest:
            yield f"{event['by']} began a term of epoch {event['epoch']} at {event['at']} after one of {highest}"
        highest = max(highest, event["epoch"])


def lasting(history, only_in, not_in):
    """Names that stand in one list of what was seen and not in the other for longer than GRACE_S."""
    since, told, answering, last = {}, set(), True, None
    for event in history:
        if last is not None and answering:
            for name in since:
                since[name] += event["at"] - last
        last = event["at"]
        if event["what"] in ("down", "up"):
            answering = event["what"] == "up"
        if event["what"] != "seen":
            continue
        alone = set(event[only_in]) - set(event[not_in])
        since = {name: since.get(name, 0.0) for name in alone}
        for name, seconds in since.items():
            if seconds > GRACE_S and name not in told:
                told.add(name)
                yield name, event["at"]


def no_orphan(history):
    """A Pod without an intent goes within a minute in which the API server answers."""
    for name, at in lasting(history, "pods", "intents"):
        yield f"the Pod {name} had no intent for more than {GRACE_S} s until {at}"


def no_ghost(history):
    """An intent without a Pod gets one, or ends, within a minute in which the API server answers."""
    for name, at in lasting(history, "intents", "pods"):
        yield f"the intent {name} had no Pod for more than {GRACE_S} s until {at}"


RULES = [one_pod_an_intent, written_first, only_the_leader_acts, epochs_rise, no_orphan, no_ghost]


def check(history):
    """Sentences, one a breach of a rule; an empty list is a history without fault."""
    history = sorted(history, key=lambda e: e["at"])
    return [sentence for rule in RULES for sentence in rule(history)]


# ---- histories with a planted fault, and others without one ----


def term(at, by, epoch):
    return {"at": at, "what": "term", "by": by, "epoch": epoch}


def over(at, by, epoch):
    return {"at": at, "what": "over", "by": by, "epoch": epoch}


def launch(at, by, pod):
    return {"at": at, "what": "launch", "by": by, "pod": pod}


def create(at, by, pod, uid="u1"):
    return {"at": at, "what": "create", "by": by, "pod": pod, "uid": uid}


def delete(at, by, pod):
    return {"at": at, "what": "delete", "by": by, "pod": pod, "uid": "u1"}


def seen(at, pods, intents):
    return {"at": at, "what": "seen", "pods": pods, "intents": intents}


def api(at, what):
    return {"at": at, "what": what}


def each(begin, end, pods, intents):
    """What is seen every five seconds."""
    return [seen(at, pods, intents) for at in range(begin, end + 1, 5)]


MADE = [term(0, "a", 1), launch(1, "a", "p"), create(2, "a", "p")]

# Name, the rule that it breaks (None: none), events.
PLANTED = [
    ("a Pod comes and goes", None, MADE + [seen(3, ["p"], ["p"]), delete(4, "a", "p"), seen(5, [], [])]),
    ("another leads on", None, MADE + [over(5, "a", 1), term(6, "b", 2), delete(7, "b", "p")]),
    ("a call arrives half a second after its term", None, MADE + [over(5, "a", 1), delete(5.5, "a", "p")]),
    ("a stopped leader says late that its term is over", None,
     MADE + [term(20, "b", 2), launch(21, "b", "q"), create(22, "b", "q"), over(30, "a", 1), delete(31, "b", "q")]),
    ("a Pod outlives its intent for 55 s", None, MADE + each(5, 60, ["p"], []) + [seen(65, [], [])]),
    ("a Pod outlives its intent for five minutes of an API server that is away", None,
     MADE + [seen(5, ["p"], []), api(6, "down")] + each(10, 300, ["p"], []) + [api(301, "up"), seen(310, [], [])]),
    ("an intent waits for its Pod for 55 s", None, MADE + each(5, 60, ["p"], ["p", "q"]) + [seen(65, ["p"], ["p"])]),
    ("an orphan is seen at two times that lie apart, each short", None,
     MADE + each(5, 40, ["p"], []) + [seen(45, ["p"], ["p"])] + each(50, 90, ["p"], [])),
    ("a Pod is created twice", one_pod_an_intent, MADE + [create(3, "a", "p", "u2")]),
    ("a Pod is created anew by the next leader", one_pod_an_intent,
     MADE + [delete(3, "a", "p"), over(4, "a", 1), term(5, "b", 2), create(6, "b", "p", "u2")]),
    ("a Pod has no intent", written_first, MADE + [create(3, "a", "q")]),
    ("an intent is written after its Pod", written_first, MADE + [create(3, "a", "q"), launch(4, "a", "q")]),
    ("a deposed leader creates", only_the_leader_acts, MADE + [launch(3, "a", "q"), term(20, "b", 2), create(21, "a", "q")]),
    ("a deposed leader deletes", only_the_leader_acts, MADE + [term(20, "b", 2), delete(21, "a", "p")]),
    ("a deposed leader writes an intent down", only_the_leader_acts, MADE + [term(20, "b", 2), launch(21, "a", "q")]),
    ("a leader acts after its term", only_the_leader_acts, MADE + [over(5, "a", 1), delete(7, "a", "p")]),
    ("a leader writes an intent down right after its term", only_the_leader_acts,
     MADE + [over(5, "a", 1), launch(5.5, "a", "q")]),
    ("a call is late, and another leads by then", only_the_leader_acts,
     MADE + [over(5, "a", 1), term(5.3, "b", 2), delete(5.5, "a", "p")]),
    ("one who never led acts", only_the_leader_acts, MADE + [delete(6, "b", "p")]),
    ("two terms have one epoch", epochs_rise, MADE + [over(5, "a", 1), term(6, "b", 1)]),
    ("an epoch falls", epochs_rise, [term(0, "a", 7), over(1, "a", 7), term(2, "b", 3)]),
    ("a Pod stays without an intent", no_orphan, MADE + each(5, 75, ["p"], [])),
    ("a Pod stays without an intent after the API server is back", no_orphan,
     MADE + [api(5, "down"), api(100, "up")] + each(105, 175, ["p"], [])),
    ("an intent stays without a Pod", no_ghost, MADE + each(5, 75, ["p"], ["p", "q"])),
]


def planted():
    """Sentences about planted faults that are not found, and right histories in which one is."""
    for name, rule, events in PLANTED:
        history = sorted(events, key=lambda e: e["at"])
        broken = [r for r in RULES if list(r(history))]
        if rule is None and broken:
            yield f"'{name}' is right, and breaks {broken[0].__name__}"
        if rule is not None and rule not in broken:
            yield f"'{name}' breaks {rule.__name__}, which does not find it"


def main():
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if words else 2
    if words == ["--planted"]:
        bad = list(planted())
        print("\n".join(bad) if bad else f"{len(PLANTED)} histories are judged as they should be")
        return 1 if bad else 0
    bad = []
    for path in words:
        with open(path, encoding="utf-8") as file:
            bad += [f"{path}: {sentence}" for sentence in check([json.loads(line) for line in file if line.strip()])]
    print("\n".join(bad) if bad else "nothing found")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
