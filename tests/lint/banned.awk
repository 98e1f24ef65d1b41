# banned.awk - prints every call of a function that is banned where it stands; exits 1 when there was
# one. Reads layers.txt, banned.h, banned.txt and then stripped text (strip.awk).

function layer_of(path,    best, name) {
    best = ""
    for (name in layer)
        if (index(path, name "/") == 1 && length(name) > length(best)) best = name
    return best
}

# An exception names a file, or a folder at the root with its slash.
function is_banned(path, name) {
    if ((path, name) in excepted) return 0
    if ((substr(path, 1, index(path, "/")), name) in excepted) return 0
    if (name in everywhere) return 1
    if ((layer_of(path), name) in local) return 1
    return layer_of(path) in pure && ("pure", name) in local
}

FILENAME ~ /layers\.txt$/ {
    if ($1 == "layer") layer[$2] = 1
    if ($1 == "pure") for (i = 2; i <= NF; i++) pure[$i] = 1
    next
}

FILENAME ~ /banned\.h$/ {
    if ($1 != "#pragma" || $3 != "poison") next
    for (i = 4; i <= NF && $i != "/*"; i++) everywhere[$i] = 1
    names++
    next
}

FILENAME ~ /banned\.txt$/ {
    if ($1 == "in") {
        n = split($2, places, ",")
        for (k = 1; k <= n; k++) for (i = 3; i <= NF; i++) local[places[k], $i] = 1
    }
    if ($1 == "except") for (i = 3; i <= NF; i++) excepted[$2, $i] = 1
    next
}

{
    colon = index($0, ":")
    path = substr($0, 1, colon - 1)
    text = substr($0, colon + 1)
    colon = index(text, ":")
    number = substr(text, 1, colon - 1)
    text = " " substr(text, colon + 1)
    if (text ~ /^ *#/) next
    # A name directly before a bracket, and not a member, is a call (or a declaration of the same).
    while (match(text, /[A-Za-z_][A-Za-z_0-9]*[ ]*\(/)) {
        name = substr(text, RSTART, RLENGTH - 1)
        sub(/ *$/, "", name)
        before = RSTART > 1 ? substr(text, RSTART - 1, 1) : " "
        text = substr(text, RSTART + RLENGTH)
        if (before != "." && before != ">" && is_banned(path, name)) {
            printf "%s:%s: %s is banned here\n", path, number, name
            bad = 1
        }
    }
}

END {
    if (!names) {
        print "banned.h: no poison lines were read"
        bad = 1
    }
    exit bad
}
