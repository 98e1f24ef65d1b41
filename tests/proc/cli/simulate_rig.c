/* simulate_rig.c - runs the command and reads its digests. */
#include "tests/proc/cli/simulate_rig.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX 1024

static int run(struct buf *out, const char *more, const char *line, va_list ap)
    __attribute__((format(printf, 3, 0)));
static int run(struct buf *out, const char *more, const char *line, va_list ap)
{
    char words[LINE_MAX];
    int len = vsnprintf(words, sizeof words, line, ap);
    assert_true(len >= 0 && (size_t)len + strlen(more) < sizeof words);
    snprintf(words + len, sizeof words - (size_t)len, "%s", more);
    return rig_muster("simulate", words, out);
}

int simulate(struct buf *out, const char *line, ...)
{
    va_list ap;
    va_start(ap, line);
    int code = run(out, "", line, ap);
    va_end(ap);
    return code;
}

void digests(const struct buf *out, char (*ret)[DIGEST], uint32_t count)
{
    const char *at = out->data;
    for (uint32_t i = 0; i < count; i++) {
        at = strstr(at, "\"digest\":\"");
        assert_non_null(at);
        at += strlen("\"digest\":\"");
        snprintf(ret[i], sizeof ret[i], "%.16s", at);
    }
    assert_null(strstr(at, "\"digest\""));
}

void simulate_digest(char ret[DIGEST], struct buf *out, const char *line, ...)
{
    char digest[1][DIGEST];
    va_list ap;
    va_start(ap, line);
    int code = run(out, " -o json", line, ap);
    va_end(ap);
    if (code != 0) fail_msg("%s: %d, %.300s", line, code, out->data);
    digests(out, digest, 1);
    memcpy(ret, digest[0], DIGEST);
}
