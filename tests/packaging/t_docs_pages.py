"""t_docs_pages.py - tests `muster docs man` and `muster docs completion`: they say what --help says."""
import functools
import json
import os
import pty
import re
import select
import sys
import time

import rig


# ---- what --help says ----

@functools.lru_cache(maxsize=None)
def help_of(command):
    return rig.muster(*command.split(), "--help").stdout


@functools.lru_cache(maxsize=None)
def commands():
    """All commands, those below others too: {"plan layers", ...}."""
    top = re.findall(r"^  ([a-z]+) +\S", rig.muster("--help").stdout, re.M)
    below = ["simulate clouds"] + [f"plan {name}" for name in ("layers", "move", "load")]
    below += [f"model {name}" for name in ("convert", "imatrix", "inspect", "make-random", "quantize", "verify")]
    below += [f"bench {name}" for name in ("engine", "kernels")]
    assert len(top) > 20 and "simulate" in top
    return top + below


def options_of(command):
    """[(letter or None, flag, sentence)] of a command."""
    found = []
    for line in help_of(command).splitlines():
        match = re.match(r"  (?:-(\w), |    )(--[a-z0-9-]+)(?: [A-Z,]+)?(?:  +(.*))?$", line)
        if match:
            found.append([match.group(1), match.group(2), match.group(3) or ""])
        elif found and re.match(r" {30}\S", line):
            found[-1][2] += " " + line.strip()
    assert found, command
    return found


def is_former(sentence):
    return sentence.strip().startswith(("Former name", "Deprecated"))


# ---- manual pages ----

def page_name(command):
    return "muster-" + command.replace(" ", "-") + ".1"


def plain(page):
    """The text of a page, without what escapes a minus or sets a font."""
    return re.sub(r"\\f[BIR]|\\:", "", page).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")


def test_every_command_has_a_page():
    with rig.folder() as place:
        rig.muster("docs", "man", place)
        wanted = {page_name(command) for command in commands()} | {"muster.1", "muster.yaml.5"}
        assert set(os.listdir(place)) == wanted, set(os.listdir(place)) ^ wanted
        whole = rig.muster("docs", "man").stdout
        assert whole.count(".TH ") == len(wanted)
        for name in wanted:
            assert rig.read(place, name) in whole, name


def test_every_option_is_on_its_page():
    with rig.folder() as place:
        rig.muster("docs", "man", place)
        for command in commands():
            page = plain(rig.read(place, page_name(command)))
            for letter, flag, sentence in options_of(command):
                head = (f"-{letter}, " if letter else "") + flag
                assert re.search(rf"^{re.escape(head)}( [A-Z,]+)?$", page, re.M), (command, head)
                if flag != "--help":
                    assert sentence.strip().replace("`", "") in page, (command, flag, sentence)


def test_every_key_is_in_the_page_of_the_file():
    with rig.folder() as place:
        rig.muster("docs", "man", place)
        page = plain(rig.read(place, "muster.yaml.5"))
        keys = re.findall(r"^\| `([a-z0-9_.]+)` \|", rig.muster("docs", "configuration").stdout, re.M)
        assert len(keys) > 100
        for key in keys:
            assert re.search(rf"^{re.escape(key)} ", page, re.M), key


def test_groff_has_no_complaint():
    rig.need("man", "groff")
    with rig.folder() as place:
        rig.muster("docs", "man", place)
        environment = dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80", MANROFFOPT="", PAGER="cat")
        for name in sorted(os.listdir(place)):
            shown = rig.run("man", "-l", "--warnings", os.path.join(place, name), env=environment)
            assert shown.stderr == "", (name, shown.stderr)
            assert "SEE ALSO" in shown.stdout, name
        # A page with a mistake must be found, or this test could not fail.
        with open(os.path.join(place, "wrong.1"), "w", encoding="ascii") as file:
            file.write(".TH X 1\n.SH NAME\nx \\- y\n.nosuchmacro\n")
        assert rig.run("man", "-l", "--warnings", os.path.join(place, "wrong.1"), env=environment).stderr != ""


def test_pages_and_shells_that_are_not_there():
    assert "want bash, zsh or fish" in rig.muster("docs", "completion", "tcsh", status=2).stderr
    assert "want bash, zsh or fish" in rig.muster("docs", "completion", status=2).stderr
    assert "takes no further argument" in rig.muster("docs", "metrics", "x", status=2).stderr
    assert "want configuration" in rig.muster("docs", "manual", status=2).stderr
    with rig.folder() as place:
        file = os.path.join(place, "file")
        with open(file, "w", encoding="ascii"):
            pass
        assert "file" in rig.muster("docs", "man", file + "/below", status=1).stderr


# ---- bash ----

def bash(lines, breaks=True, cwd=None):
    """Completes each line (its words, the last one at the cursor) and returns the lists."""
    rig.need("bash")
    script = rig.muster("docs", "completion", "bash").stdout
    script += "" if breaks else "\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//=/}\n"
    for words in lines:
        quoted = " ".join("'" + word + "'" for word in ["muster"] + words)
        script += (f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _muster muster '{words[-1]}' ''\n"
                   'printf "%s " "${COMPREPLY[@]}"; echo\n')
    done = rig.run("bash", "--norc", "-c", script, cwd=cwd)
    assert done.stderr == "", done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_commands_and_options():
    (begun, every), top = bash([["si"], [""]]), [name for name in commands() if " " not in name]
    assert begun == ["simulate"], begun
    assert every == top + ["--help", "--version"], every
    for command, found in zip(commands(), bash([command.split() + ["-"] for command in commands()])):
        wanted = {"-h", "--help"}
        for letter, flag, sentence in options_of(command):
            if not is_former(sentence):
                wanted |= {flag} | ({"-" + letter} if letter else set())
        assert set(found) == wanted, (command, set(found) ^ wanted)


def policies(kind):
    rows = json.loads(rig.muster("policies", kind, "-o", "json").stdout)
    rows = rows if isinstance(rows, list) else next(iter(rows.values()))
    return {row["name"] for row in rows}


def test_bash_completes_the_policies_that_help_refers_to():
    lines, kinds = [], []
    for command in commands():
        for _, flag, sentence in options_of(command):
            match = re.search(r"`muster policies ([a-z]+)`", sentence)
            if match and not is_former(sentence):
                lines.append(command.split() + [flag, ""])
                kinds.append(match.group(1))
    assert len(lines) > 25
    for line, kind, found in zip(lines, kinds, bash(lines)):
        # Bounds know the future: only a simulation may name them, and completions leave them out.
        assert found and set(found) <= policies(kind), (line, set(found) - policies(kind))
        assert len(policies(kind)) - len(found) <= 3, (line, policies(kind) - set(found))


def test_bash_completes_values():
    rows = [
        (["simulate", "--route", "pref"], ["prefix_affinity"]),
        (["simulate", "--route", "=", "pref"], ["prefix_affinity"]),
        (["simulate", "--scale-policy", "keda"], ["keda_queue"]),
        (["router", "--route", "consi"], ["consistent_hash"]),
        (["get", "-o", ""], ["table", "json", "yaml", "wide"]),
        (["get", "-o", "json", "po"], ["pools"]),
        (["get", "po"], ["pools"]),
        (["keys", "--requests-per-min", "5", "cr"], ["create"]),
        (["plan", "la"], ["layers"]),
        (["plan", "layers", "--policy", "hel"], ["helix"]),
        (["plan", "layers", "la"], []),
        (["simulate", "--speed", ""], []),
        (["nothing", ""], []),
        (["run", "mod"], ["model.gguf"]),
        (["simulate", "--trace", "mod"], ["model.gguf"]),
    ]
    with rig.folder() as place:
        with open(os.path.join(place, "model.gguf"), "w", encoding="ascii"):
            pass
        for (words, wanted), found in zip(rows, bash([words for words, _ in rows], cwd=place)):
            assert found == wanted, (words, found)
        assert bash([["simulate", "--route=pref"]], breaks=False) == [["--route=prefix_affinity"]]


def test_every_word_that_is_offered_is_taken():
    offered = bash([command.split() + [""] for command in commands()])
    asked = refused = 0
    with rig.folder() as place:  # no fleet runs there
        for command, words in zip(commands(), offered):
            if not re.search(r"^  (ACTION|KIND|PAGE) ", help_of(command), re.M):
                continue
            refused += "'zzz'" in rig.muster(*command.split(), "zzz", status=None, cwd=place).stderr
            for word in words:
                done = rig.muster(*command.split(), word, status=None, cwd=place)
                assert f"'{word}'" not in done.stderr, (command, word, done.stderr)
                asked += 1
    assert refused >= 7 and asked > 40, (refused, asked)


# ---- zsh and fish ----

def test_fish_completes():
    rig.need("fish")
    with rig.folder() as place:
        path = os.path.join(place, "muster.fish")
        with open(path, "w", encoding="utf-8") as file:
            file.write(rig.muster("docs", "completion", "fish").stdout)
        environment = dict(os.environ, HOME=place, XDG_CONFIG_HOME=place, XDG_DATA_HOME=place)

        def complete(line):
            done = rig.run("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'", env=environment)
            assert done.stderr == "", done.stderr
            return [row.split("\t")[0] for row in done.stdout.splitlines()]

        assert complete("muster si") == ["simulate"]
        assert complete("muster simulate --rou") == ["--route", "--routers"]
        assert complete("muster simulate --route pref") == ["prefix_affinity"]
        assert complete("muster plan layers --policy hel") == ["helix"]
        assert sorted(complete("muster plan l")) == ["layers", "load"]
        assert complete("muster get po") == ["pools"]
        assert complete("muster plan layers --row") == []  # a former name


def zsh_session(place, lines):
    """Types each line and a tab into an interactive zsh; returns what the line became."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(HOME=place, TERM="dumb", PS1="> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    seen = ""

    def until(text):
        nonlocal seen
        end = time.monotonic() + rig.WAIT_S
        while text not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536).decode(errors="replace")
        assert text in seen, f"zsh did not show '{text}' but: {seen[-2000:]}"
        seen = seen.split(text, 1)[1]

    try:
        os.write(terminal, f"autoload -U compinit; compinit -u -D; source {place}/_muster; echo is'_'ready\n".encode())
        until("is_ready")
        for typed, becomes in lines:
            os.write(terminal, typed.encode() + b"\t")
            until(becomes)
            os.write(terminal, b"\x15")  # Ctrl-U empties the line
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def test_zsh_completes():
    rig.need("zsh")
    with rig.folder() as place:
        with open(os.path.join(place, "_muster"), "w", encoding="utf-8") as file:
            file.write(rig.muster("docs", "completion", "zsh").stdout)
        rig.run("zsh", "-n", os.path.join(place, "_muster"))
        zsh_session(place, [
            ("muster simu", "muster simulate "),
            ("muster simulate --route pref", "--route prefix_affinity"),
            ("muster simulate --route=pref", "--route=prefix_affinity"),
            ("muster plan layers --policy hexg", "--policy hexgen"),
            ("muster get ten", "muster get tenants"),
        ])


if __name__ == "__main__":
    rig.main(sys.modules[__name__])
