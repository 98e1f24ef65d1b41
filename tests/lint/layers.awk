# layers.awk - checks the #include lines of the given files against layers.txt, the first file. Prints
# each violation; exits 1 when there was one.

function layer_of(path,    best, name) {
    best = ""
    for (name in allowed)
        if (index(path, name "/") == 1 && length(name) > length(best)) best = name
    return best
}

function complain(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    bad = 1
}

function check_own(header,    from, to) {
    from = layer_of(FILENAME)
    to = layer_of(header)
    if (from == "") complain("lies in no layer of layers.txt")
    else if (to == "") complain("\"" header "\" is named from the root of the tree, layer first")
    else if (to != from && index(allowed[from], " " to " ") == 0 && allowed[from] !~ / \* /)
        complain(from " may not include " to " (" header ")")
}

function check_system(header,    from, prefix, i, n, place, ok) {
    from = layer_of(FILENAME)
    if (from in pure && !(header in libc) && !is_vendor(header))
        complain(from " does no I/O and may not include <" header ">")
    if ((from, header) in denied) complain(from " may not include <" header ">")
    for (prefix in vendor) {
        if (index(header, prefix) != 1) continue
        ok = 0
        n = split(vendor[prefix], place, " ")
        for (i = 1; i <= n; i++)
            if (FILENAME == place[i] || index(FILENAME, place[i] "/") == 1) ok = 1
        if (!ok) complain("<" header "> belongs only to" vendor[prefix])
    }
}

function is_vendor(header,    prefix) {
    for (prefix in vendor)
        if (index(header, prefix) == 1) return 1
    return 0
}

function rest(from,    i, text) {
    text = " "
    for (i = from; i <= NF; i++) text = text $i " "
    return text
}

FILENAME ~ /layers\.txt$/ {
    if ($1 == "layer") allowed[$2] = rest(3)
    else if ($1 == "pure") for (i = 2; i <= NF; i++) pure[$i] = 1
    else if ($1 == "libc") for (i = 2; i <= NF; i++) libc[$i] = 1
    else if ($1 == "deny") for (i = 3; i <= NF; i++) denied[$2, $i] = 1
    else if ($1 == "vendor") vendor[$2] = rest(3)
    else if (NF > 0 && $1 !~ /^#/) complain("unknown row " $1)
    next
}

/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    check_own(part[2])
}

/^[ \t]*#[ \t]*include[ \t]*</ {
    split($0, part, /[<>]/)
    check_system(part[2])
}

END { exit bad }
