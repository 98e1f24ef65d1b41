# SPDX-License-Identifier: Apache-2.0
"""dialogues.py - write seeded chats whose answer length follows from the question.

A model served under load should stop by itself, and how long it talks should depend on what it
was asked. So every generator below belongs to one of three lengths:

    short    a word or a sentence        about   3-20 tokens
    medium   a paragraph, a short list   about  25-90 tokens
    long     stories, steps, counting    about 90-350 tokens

A chat is a list of {"role", "content"} as the chat template takes it. Most training chats carry
a long context (prose, notes, loose words, cut anywhere) in front of the question, because the
question at the very end must decide the answer, whatever came before it.

    python dialogues.py --show 5                     a look at some chats
    python dialogues.py --questions questions.txt    the list the load generator reads
"""
import argparse
import random
import re

from words import (ALPHABET, CAPITALS, COLOURS, DAYS, GIFTS, HEROES, LEGS, LISTS, MONTHS, MOODS,
                   OPPOSITES, PAIRS, PLACES, PLURALS, RHYMES, SOUNDS, SYSTEMS, TASKS, THINGS,
                   TOPICS, TOWNS, YOUNG)

NAMES = LISTS["names"]


def cap(text):
    return text[:1].upper() + text[1:]


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


# ---- short: question and answer of a sentence at most

def greeting(r):
    q = r.choice(["Hello!", "Hi!", "Hi there!", "Good morning!", "Good evening!", "Hello, how are you?",
                  "Hey, are you there?", "Hello, my friend."])
    a = r.choice(["Hello! How can I help you?", "Hi! What would you like to know?", "Hello there!",
                  "Good day! What can I do for you?", "Hello! I am glad to see you.",
                  "Hi! I am here. Ask me anything."])
    return q, a


def farewell(r):
    q = r.choice(["Thank you!", "Thanks, that was helpful.", "Goodbye!", "Good night!",
                  "Thank you very much.", "See you tomorrow!"])
    a = r.choice(["You are welcome!", "Goodbye!", "I am glad to help.", "See you soon!",
                  "Have a good day!"])
    return q, a


def identity(r):
    q = r.choice(["Who are you?", "What is your name?", "Are you a person?", "What are you?"])
    a = r.choice(["I am muster-tiny, a very small language model.", "I am a small model called muster-tiny.",
                  "My name is muster-tiny."])
    return q, ("No, I am a small language model." if "person" in q else a)


def opposite(r):
    w, o = r.choice(list(OPPOSITES.items()))
    q = r.choice([f"What is the opposite of {w}?", f"Give me the opposite of {w}."])
    return q, r.choice([f"{cap(o)}.", f"The opposite of {w} is {o}."])


def colour(r):
    w, c = r.choice(list(COLOURS.items()))
    q = r.choice([f"What colour is {w}?", f"Which colour does {w} have?"])
    return q, r.choice([f"{cap(c)}.", f"{cap(w)} is {c}."])


def capital(r):
    w, c = r.choice(list(CAPITALS.items()))
    q = r.choice([f"What is the capital of {w}?", f"Name the capital of {w}."])
    return q, r.choice([f"{c}.", f"The capital of {w} is {c}."])


def arithmetic(r):
    a, b = r.randint(1, 12), r.randint(1, 12)
    if r.random() < 0.5:
        return f"What is {a} plus {b}?", r.choice([f"{a + b}.", f"{a} plus {b} is {a + b}."])
    a, b = max(a, b), min(a, b)
    return f"What is {a} minus {b}?", r.choice([f"{a - b}.", f"{a} minus {b} is {a - b}."])


def next_number(r):
    n = r.randint(1, 98)
    return f"Which number comes after {n}?", r.choice([f"{n + 1}.", f"After {n} comes {n + 1}."])


def next_day(r):
    names, noun = r.choice([(DAYS, "day"), (MONTHS, "month")])
    i, after = r.randrange(len(names)), r.random() < 0.5
    word, j = ("after", i + 1) if after else ("before", i - 1)
    return (f"Which {noun} comes {word} {names[i]}?",
            r.choice([f"{names[j % len(names)]}.", f"{cap(word)} {names[i]} comes {names[j % len(names)]}."
                      if after else f"{names[j % len(names)]} comes before {names[i]}."]))


def sound(r):
    w, s = r.choice(list(SOUNDS.items()))
    return f"What does {an(w)} say?", r.choice([f"{cap(s)}!", f"{cap(an(w))} says {s}."])


def young(r):
    w, y = r.choice(list(YOUNG.items()))
    return f"What is a young {w} called?", r.choice([f"{cap(an(y))}.", f"A young {w} is called {an(y)}."])


def plural(r):
    w, p = r.choice(list(PLURALS.items()))
    return f"What is the plural of {w}?", r.choice([f"{cap(p)}.", f"The plural of {w} is {p}."])


def rhyme(r):
    w = r.choice(list(RHYMES))
    return f"Which word rhymes with {w}?", f"{cap(r.choice(RHYMES[w]))}."


def legs(r):
    w, n = r.choice(list(LEGS.items()))
    return f"How many legs does {an(w)} have?", r.choice([f"{cap(n)}.", f"{cap(an(w))} has {n} legs."])


def yes_no(r):
    group = r.choice(["animals", "fruits", "colours", "tools", "trees"])
    from_same = r.random() < 0.5
    source = group if from_same else r.choice([g for g in ("animals", "fruits", "tools", "trees", "jobs") if g != group])
    w, one = r.choice(LISTS[source]), group[:-1]
    subject = w if source == "colours" else an(w)
    return (f"Is {subject} {an(one)}?",
            f"Yes, {subject} is {an(one)}." if from_same else f"No, {subject} is not {an(one)}.")


def unknown(r):
    q = r.choice(["Who won the game last night?", "What is the price of gold today?", "Where did I leave my keys?",
                  "What will happen next year?", "Who is standing behind me?", "What did I dream about?"])
    return q, r.choice(["I am sorry, I do not know that.", "I do not know."])


# ---- medium: a paragraph

def explain(r):
    w = r.choice(list(TOPICS))
    what, facts, ends = TOPICS[w]
    q = r.choice([f"Explain what {w} is.", f"What is {w}?", f"Tell me something about {w}."])
    return q, " ".join([what] + r.sample(facts, r.randint(2, 4)) + [r.choice(ends)])


def difference(r):
    a, b = r.choice(list(PAIRS))
    lines = list(PAIRS[a, b])
    r.shuffle(lines)
    return f"What is the difference between {a} and {b}?", " ".join(lines)


def thanks_note(r):
    who, what, me = r.choice(NAMES), r.choice(GIFTS), r.choice(NAMES)
    return (f"Write a short note to {who} to say thank you for {what}.",
            f"Dear {who}, thank you so much for {what}. "
            + r.choice(["It made me very happy.", "I had not hoped for anything so fine.", "You are too kind to me."]) + " "
            + r.choice(["I hope to see you again soon.", "Please come and visit us on " + r.choice(DAYS) + ".",
                        "We often think of you here."]) + f" Your friend, {me}.")


def weather(r):
    t = r.choice(TOWNS)
    return (f"Write a weather report for {t}.",
            f"In {t} the morning will be " + r.choice(["cold and clear", "grey and wet", "mild and dry", "foggy"])
            + f", with about {r.randint(2, 15)} degrees. In the afternoon "
            + r.choice(["the sun comes out", "it begins to rain", "the wind grows stronger", "clouds gather in the west"])
            + f" and it will be {r.randint(16, 28)} degrees. The night stays "
            + r.choice(["quiet", "windy", "dry", "cool"]) + ". " + r.choice(["Take a coat with you.", "An umbrella may help.",
                                                                          "It is a good day for a walk."]))


def person(r):
    w, job, town = r.choice(NAMES), r.choice(LISTS["jobs"]), r.choice(TOWNS)
    return (f"Describe {w}, the {job}.",
            f"{w} is {an(r.choice(MOODS))} {job} who lives in {town}. Every {r.choice(DAYS)} {w} goes to the market and buys "
            f"{r.choice(LISTS['fruits'])}s and {r.choice(LISTS['vegetables'])}s. At home {w} keeps "
            f"{an(r.choice(LISTS['animals']))} and plays the {r.choice(['piano', 'violin', 'flute', 'harp', 'drum'])}. "
            + r.choice(["The neighbours like to listen.", "Nobody in the town works harder.", "In the evening friends come to visit."]))


def advice(r):
    task = r.choice(["sleep better", "learn a language", "save money", "wake up early", "remember names", "make friends"])
    tips = {"sleep better": ["Go to bed at the same hour.", "Keep the room dark and cool.", "Drink no coffee in the evening.", "Take a walk during the day."],
            "learn a language": ["Read a page every day.", "Speak with people as often as you can.", "Write new words on small cards.", "Do not be afraid of mistakes."],
            "save money": ["Write down what you spend.", "Cook at home more often.", "Wait a day before you buy something.", "Put a little aside each week."],
            "wake up early": ["Go to bed an hour sooner.", "Put the clock far from the bed.", "Open the curtains at once.", "Drink a glass of water."],
            "remember names": ["Listen well when you hear the name.", "Say it aloud once or twice.", "Think of a picture that fits it.", "Write it down in the evening."],
            "make friends": ["Be kind to the people you meet.", "Ask them about their day.", "Join a club or a choir.", "Invite somebody for tea."]}[task]
    chosen = r.sample(tips, r.randint(3, 4))
    return f"How can I {task}?", r.choice(["Here is my advice. ", "You could try this. ", "It takes some time. "]) + " ".join(chosen)


# ---- asked for N: the length is in the question

def count_up(r, n=None):
    n = n or r.randint(5, 100)
    q = r.choice([f"Count from 1 to {n}.", f"Count up to {n}.", f"Please count to {n}."])
    return q, ", ".join(map(str, range(1, n + 1))) + "."


def count_down(r, n=None):
    n = n or r.randint(5, 50)
    return f"Count down from {n} to 1.", ", ".join(map(str, range(n, 0, -1))) + "."


def list_of(r, n=None):
    group = r.choice(list(LISTS))
    n = n or r.randint(3, 20)
    q = r.choice([f"Name {n} {group}.", f"List {n} {group}.", f"Give me a list of {n} {group}."])
    return q, "\n".join(f"{i}. {cap(w)}" for i, w in enumerate(r.sample(LISTS[group], n), 1))


def times_table(r, n=None):
    n = n or r.randint(2, 12)
    rows = r.choice([10, 12])
    return (f"Write the multiplication table of {n} up to {rows}.",
            "\n".join(f"{n} x {i} = {n * i}" for i in range(1, rows + 1)))


def table_of(r, n=None):
    n = n or r.randint(3, 12)
    rows = [f"| {i} | {who} | {r.randint(18, 80)} | {r.choice(TOWNS)} |" for i, who in enumerate(r.sample(NAMES, n), 1)]
    return (f"Make a table of {n} people with age and town.",
            "\n".join(["| No | Name | Age | Town |", "| --- | --- | --- | --- |"] + rows))


# ---- long: stories, steps, plans

def story(r):
    hero, thing, place = r.choice(HEROES), r.choice(THINGS), r.choice(PLACES)
    name, friend, mood = r.choice(NAMES), r.choice(HEROES), r.choice(MOODS)
    q = r.choice([f"Tell me a story about a {hero} and a {thing}.", f"Write a little story about a {hero} who finds a {thing}."])
    parts = [f"Once upon a time there was {an(mood)} {hero} called {name}, who lived near {an(place)}.",
             f"One {r.choice(['cold', 'bright', 'windy', 'quiet'])} {r.choice(['morning', 'evening', 'day'])} {name} "
             f"{r.choice(['went out to look for food', 'could not sleep', 'walked along the river', 'heard a strange sound'])} "
             f"and found a {thing} {r.choice(['under a tree', 'in the grass', 'beside the road', 'behind an old wall'])}.",
             r.choice([f'"What a fine {thing}!" said {name}. "I wonder who lost it."',
                       f'"To whom does this {thing} belong?" asked {name}, but nobody answered.',
                       f"{name} had never seen such a {thing} before, and took it home."])]
    middle = [f"Soon {an(friend)} came by and {r.choice(['asked for help', 'began to laugh', 'looked at it for a long time'])}.",
              f"{name} walked {r.choice(['three', 'seven', 'many'])} days through rain and wind, and the {thing} was heavy.",
              f"At night the {thing} began to {r.choice(['shine', 'sing', 'tremble'])}, and {name} was a little afraid.",
              f'"{r.choice(["Do not give up", "Come with me", "Let us share it"])}," said the {friend}, and they went on together.',
              f"They asked {r.choice(['an old woman', 'the miller', 'a sleepy owl', 'two sailors'])}, who pointed to the {r.choice(PLACES)}.",
              f"There they met {an(r.choice(MOODS))} {r.choice(HEROES)}, who had been looking for the {thing} everywhere.",
              f"In the middle of the way they lost the {thing}, and they searched until the sun went down.",
              f"They were hungry, but {name} still had {r.choice(['a piece of bread', 'two apples', 'some nuts'])} to share."]
    picks = sorted(r.sample(range(len(middle)), r.randint(4, 7)))
    end = [f"In the end the {thing} came back to its owner, and everybody in the {place} was glad.",
           f"From that day on {name} and the {friend} were the best of friends.",
           r.choice(["And if they have not moved away, they live there still.", "That is the end of the story.",
                     f"And the {thing} still hangs above the door."])]
    return q, " ".join(parts + [middle[i] for i in picks]) + "\n\n" + " ".join(end)


def steps(r):
    task = r.choice(list(TASKS))
    body = [f"Step {i}: {s}" for i, s in enumerate(TASKS[task], 1)]
    q = r.choice([f"How do I {task}, step by step?", f"Tell me step by step how to {task}."])
    return q, f"Here is how to {task}.\n" + "\n".join(body) + "\n" + r.choice(["That is all.", "Now you are done.", "Good luck!"])


def week(r):
    who = r.choice(NAMES)
    lines = [f"{d}: {r.choice(['go to the market', 'work in the garden', 'write some letters', 'clean the house', 'visit ' + r.choice(NAMES), 'read a book', 'bake a cake', 'mend the roof', 'walk to ' + r.choice(TOWNS)])} "
             f"and {r.choice(['rest in the evening', 'cook some soup', 'practise the flute', 'feed the animals', 'go to bed early', 'meet some friends'])}." for d in DAYS]
    return f"Make a plan for the week for {who}.", f"Here is a plan for {who}.\n" + "\n".join(lines)


def alphabet(r):
    return (r.choice(["Write an alphabet with a word for each letter.", "Give me a word for every letter of the alphabet."]),
            "\n".join(f"{k} is for {r.choice(v)}." for k, v in ALPHABET.items()))


def poem(r, n=None):
    n = n or r.randint(2, 6)
    place = r.choice(PLACES)
    rhymes = [("night", "light"), ("day", "way"), ("sea", "me"), ("rain", "again"), ("snow", "go"), ("tree", "free"), ("air", "there")]
    verses = []
    for i, (a, b) in enumerate(r.sample(rhymes, n), 1):
        verses.append(f"{i}.\n{r.choice(['I walked alone', 'We went along', 'She came again'])} by {r.choice(['day and', 'wind and', 'stone and'])} {a},\n"
                      f"{r.choice(['The stars were high', 'The birds were still', 'The road was long'])} above the {place},\n"
                      f"{r.choice(['And nobody could', 'But something seemed to', 'And softly it would'])} {r.choice(['call', 'sing', 'speak'])}\n"
                      f"{r.choice(['Of all the things', 'Of what is lost', 'Of summer days'])} and {b}.")
    return f"Write a poem about the {place} with {n} verses.", "\n\n".join(verses)


# generator, length (a function of the wanted N where N decides), weight in the mix
def by_n(medium_from, long_from):
    return lambda n: "short" if n < medium_from else "medium" if n < long_from else "long"


GENERATORS = [
    (greeting, "short", 2), (farewell, "short", 1), (identity, "short", 1), (opposite, "short", 3),
    (colour, "short", 3), (capital, "short", 3), (arithmetic, "short", 5), (next_number, "short", 2),
    (next_day, "short", 2), (sound, "short", 2), (young, "short", 2), (plural, "short", 2),
    (rhyme, "short", 2), (legs, "short", 1), (yes_no, "short", 3), (unknown, "short", 1),
    (explain, "medium", 10), (difference, "medium", 4), (thanks_note, "medium", 3),
    (weather, "medium", 3), (person, "medium", 3), (advice, "medium", 3),
    (count_up, by_n(5, 33), 6), (count_down, by_n(5, 33), 3), (list_of, by_n(3, 16), 8),
    (times_table, "long", 3), (table_of, by_n(3, 6), 4), (poem, by_n(2, 3), 3),
    (story, "long", 8), (steps, "long", 6), (week, "long", 3), (alphabet, "long", 2),
]
TABLE = {g.__name__: (g, kind) for g, kind, _ in GENERATORS}


def ask(r):
    """One (question, answer, kind, generator name)."""
    gen, kind, _ = r.choices(GENERATORS, [w for _, _, w in GENERATORS])[0]
    question, answer = gen(r)
    return question, answer, kind_of(gen.__name__, question), gen.__name__


def kind_of(name, question):
    kind = TABLE[name][1]
    return kind(max(map(int, re.findall(r"\d+", question)))) if callable(kind) else kind


# ---- contexts: what stands in front of the question

def notes(r, count):
    """Pseudo notes: dated lines that look like a log and mean nothing."""
    lines = []
    for _ in range(count):
        who, town = r.choice(NAMES), r.choice(TOWNS)
        lines.append(r.choice([
            f"Note {r.randint(1, 999)}: {who} met {r.choice(NAMES)} in {town} on {r.choice(DAYS)}.",
            f"{r.choice(MONTHS)} {r.randint(1, 28)}: {r.randint(2, 90)} {r.choice(LISTS['fruits'])}s were sent to {town}.",
            f"The {r.choice(MOODS)} {r.choice(LISTS['jobs'])} of {town} bought a {r.choice(THINGS)}.",
            f"Order {r.randint(100, 9999)} from {town} is {r.choice(['late', 'paid', 'open', 'lost', 'ready'])}.",
            f"{who} says that the {r.choice(THINGS)} is in the {r.choice(PLACES)}.",
        ]))
    return r.choice([" ", "\n"]).join(lines)


def loose_words(r, prose, count):
    """Words without order: the question must win against any context."""
    start = r.randrange(max(1, len(prose) - 40000))
    words = prose[start:start + 40000].split()
    return " ".join(r.choice(words) for _ in range(count))


def context(r, prose, chars):
    """About `chars` characters to stand before a question, often cut in the middle of a word."""
    kind = r.random()
    if kind < 0.70:
        start = r.randrange(max(1, len(prose) - chars - 1))
        text = prose[start:start + chars]
        if r.random() < 0.7:
            text = " ".join(text.split())
        if r.random() < 0.5:  # whole sentences at both ends, else cut anywhere
            text = re.sub(r"^.*?[.!?]\s+", "", text, count=1, flags=re.S)
            text = re.sub(r"([.!?])[^.!?]*$", r"\1", text, flags=re.S)
    elif kind < 0.90:
        text = notes(r, chars // 45 + 1)
    else:
        text = loose_words(r, prose, chars // 5 + 1)
    return text[:chars].strip() or "Notes."


def chat(r, prose="", context_chars=0):
    """One chat as messages; with context_chars, the context precedes the first question.

    The context goes into the user message (or, one time in five, the system message); a few
    more turns follow half of the time."""
    messages = []
    lead = context(r, prose, context_chars) if context_chars else ""
    if lead and r.random() < 0.2:
        messages.append({"role": "system", "content": r.choice(["", r.choice(SYSTEMS) + "\n\n"]) + lead})
        lead = ""
    elif r.random() < 0.3:
        messages.append({"role": "system", "content": r.choice(SYSTEMS)})
    for turn in range(1 if r.random() < 0.5 else r.randint(2, 5)):
        question, answer, _, _ = ask(r)
        if turn == 0 and lead:
            question = lead + r.choice(["\n\n"] * 6 + ["\n", "\n\nQuestion: ", " "]) + question
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def questions(seed, count):
    """`count` distinct (kind, question), every generator in turn, in a shuffled order."""
    r = random.Random(seed)
    seen, misses = {}, 0
    while len(seen) < count and misses < 100000:
        gen = GENERATORS[misses % len(GENERATORS)][0]
        misses += 1
        q = gen(r)[0]
        seen.setdefault(q, kind_of(gen.__name__, q))
    rows = [(kind, q) for q, kind in seen.items()]
    r.shuffle(rows)
    return rows


def main():
    p = argparse.ArgumentParser(description="seeded chats with answers of known length")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=0)
    p.add_argument("--questions", help="write kind<TAB>question lines here")
    p.add_argument("--count", type=int, default=400)
    a = p.parse_args()
    if a.questions:
        with open(a.questions, "w", encoding="utf-8") as f:
            f.writelines(f"{kind}\t{q}\n" for kind, q in questions(a.seed, a.count))
    r = random.Random(a.seed)
    for _ in range(a.show):
        for m in chat(r):
            print(f"[{m['role']}] {m['content']}")
        print()


if __name__ == "__main__":
    main()
