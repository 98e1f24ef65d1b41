# strip.awk - prints C text without comments and without the contents of quotes, as FILE:LINE:TEXT; lines
# keep their numbers.
FNR == 1 { in_comment = 0 }
{
    line = $0
    out = ""
    while (line != "") {
        if (in_comment) {
            end = index(line, "*/")
            if (end == 0) break
            line = substr(line, end + 2)
            in_comment = 0
            continue
        }
        at = match(line, /\/\*|\/\/|"|'/)
        if (at == 0) {
            out = out line
            break
        }
        out = out substr(line, 1, at - 1)
        mark = substr(line, at, 1)
        if (mark == "/") {
            if (substr(line, at, 2) == "//") break
            line = substr(line, at + 2)
            in_comment = 1
            continue
        }
        line = substr(line, at + 1)
        pattern = mark == "\"" ? "^([^\"\\\\]|\\\\.)*\"" : "^([^'\\\\]|\\\\.)*'"
        if (match(line, pattern) == 0) break
        line = substr(line, RLENGTH + 1)
        out = out mark mark
    }
    print FILENAME ":" FNR ":" out
}
