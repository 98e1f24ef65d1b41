# sizes.awk - checks the lengths of files and functions against their limits and against sizes.txt, whose
# entries may only shrink. Reads headers.txt (templates are code and have the limit of a .c file), sizes.txt
# and then the tree.

BEGIN {
    limit["c"] = 1500
    limit["h"] = 200
    limit["function"] = 80
}

function check(what, kind, size) {
    if (what in excused) {
        seen[what] = 1
        if (size > excused[what])
            complain(what ": " size " lines, more than the " excused[what] " it is excused for")
        else if (size <= limit[kind])
            complain(what ": " size " lines, within the limit: take it out of sizes.txt")
        else if (size < excused[what])
            complain(what ": " size " lines: lower its entry in sizes.txt from " excused[what])
    } else if (size > limit[kind]) {
        complain(what ": " size " lines, the limit of a " (kind == "function" ? kind : "." kind " file") " is " limit[kind])
    }
}

function complain(text) {
    print text
    bad = 1
}

function end_file() {
    if (file != "") check(file, file ~ /\.h$/ && !(file in template) ? "h" : "c", lines)
}

FILENAME ~ /headers\.txt$/ {
    template[$1] = 1
    next
}

FILENAME ~ /sizes\.txt$/ {
    if (NF >= 2 && $1 !~ /^#/) excused[$1] = $2
    next
}

FNR == 1 {
    end_file()
    file = FILENAME
    inside = 0
    name = "?"
}
{ lines = FNR }

# Only a function's opening brace stands alone in the first column, by the format.
!inside && /^[A-Za-z_].*\(/ {
    name = $0
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
}
/^\{$/ {
    inside = 1
    from = FNR
}
/^\}/ && inside {
    inside = 0
    check(file ":" name, "function", FNR - from - 1)
}

END {
    end_file()
    for (what in excused) if (!(what in seen)) complain(what ": in sizes.txt, not in the tree")
    exit bad
}
