/* join.c - the verdicts on agents that show a token. */
#include "controller/core/join.h"

#include "base/core/bits.h"

#include <string.h>

const char *const join_verdict_names[JOIN_VERDICT_COUNT] = {
    [JOIN_FIRST] = "first", [JOIN_AGAIN] = "again",   [JOIN_TAKEN] = "taken",
    [JOIN_LATE] = "late",   [JOIN_CLOSED] = "closed",
};

const char *const join_verdict_reasons[JOIN_VERDICT_COUNT] = {
    [JOIN_FIRST] = "its agent has joined",
    [JOIN_AGAIN] = "its agent asked again",
    [JOIN_TAKEN] = "another agent has joined with this token",
    [JOIN_LATE] = "the token has expired",
    [JOIN_CLOSED] = "the instance takes no agent",
};

/* Counted from the later of the two: a create may be asked for again, and a machine may be long in coming. */
static bool has_expired(const struct intent *i, int64_t within_us, int64_t now_us)
{
    return now_us - max_i64(i->called_us, i->made_us) > within_us;
}

/* Returns true if nobody can have joined: a record without a mark says so only before the agent's first report, and
 * never where the intent was made from a listing. */
static bool is_fresh(const struct intent *i)
{
    return !i->adopted && (i->state == INTENT_CREATING || i->state == INTENT_CREATED);
}

enum join_verdict join_judge(const struct intent *i, const char *mark, int64_t within_us,
                             int64_t now_us)
{
    must(mark[0]);
    if (i->aside || i->state == INTENT_WANTED || i->state >= INTENT_ENDING) return JOIN_CLOSED;
    if (i->joined[0] && strcmp(i->joined, mark) == 0) return JOIN_AGAIN;
    if (has_expired(i, within_us, now_us)) return JOIN_LATE;
    if (i->joined[0]) return JOIN_TAKEN;
    return is_fresh(i) ? JOIN_FIRST : JOIN_CLOSED;
}
