/* failure.c - keeps the limit of silence and the time of the next look, and decides retries by a table. */
#include "router/core/failure.h"

#include "base/core/err.h"

const char *const refusal_names[REFUSAL_COUNT] = {
    [REFUSAL_NONE] = "none",           [REFUSAL_FULL] = "full",
    [REFUSAL_HELD_FULL] = "held_full", [REFUSAL_HELD_LONG] = "held_long",
    [REFUSAL_DISPLACED] = "displaced", [REFUSAL_LATE] = "late",
    [REFUSAL_POLICY] = "policy",       [REFUSAL_QUARANTINED] = "quarantined",
    [REFUSAL_FAILED] = "failed",       [REFUSAL_UNSERVED] = "unserved",
};

const char *const retry_failure_names[RETRY_FAILURE_COUNT] = {
    [RETRY_UNREACHABLE] = "unreachable",
    [RETRY_DIED] = "died",
    [RETRY_TAKEN] = "taken",
    [RETRY_SILENT] = "silent",
    [RETRY_OVERLOADED] = "overloaded",
    [RETRY_ERROR] = "error",
    [RETRY_BROKEN] = "broken",
    [RETRY_LOCAL] = "local",
};

static int64_t limit_us(const struct silence *s, const struct silence_config *c)
{
    int64_t beats_us = SILENCE_BEATS * s->beat_us;
    if (s->ours && !s->has_head) return c->head_us;
    if (s->ours && s->beat_us > 0) return c->gap_us > beats_us ? c->gap_us : beats_us;
    if (s->ours || !s->streams) return INT64_MAX;
    return s->has_bytes ? c->other_gap_us : c->other_first_us;
}

static void plan(struct silence *s, const struct silence_config *c)
{
    int64_t limit = limit_us(s, c);
    s->look_us = limit < INT64_MAX - s->heard_us ? s->heard_us + limit : INT64_MAX;
}

void silence_begin(struct silence *s, const struct silence_config *c, bool ours, bool streams,
                   int64_t now_us)
{
    *s = (struct silence){ .ours = ours, .streams = streams, .heard_us = now_us };
    plan(s, c);
}

void silence_head(struct silence *s, const struct silence_config *c, int64_t beat_us,
                  int64_t now_us)
{
    s->has_head = true;
    s->beat_us = beat_us;
    s->heard_us = now_us;
    plan(s, c);
}

void silence_heard(struct silence *s, const struct silence_config *c, int64_t now_us)
{
    bool first = !s->has_bytes;
    s->has_bytes = true;
    s->heard_us = now_us;
    if (first) plan(s, c); /* later bytes move the look when it is due */
}

bool silence_look(struct silence *s, const struct silence_config *c, int64_t now_us)
{
    /* The bytes that would have come by then may lie unread. */
    if (now_us - s->look_us > SILENCE_LATE_US) s->heard_us = now_us;
    plan(s, c);
    return now_us >= s->look_us;
}

/* The rules of retries as one table. */

static const struct {
    bool charged;
    bool crash;
    bool loss; /* of an engine: the first is free */
    int status;
} rule[RETRY_FAILURE_COUNT] = {
    [RETRY_UNREACHABLE] = { .status = 503 },
    [RETRY_DIED] = { .charged = true, .crash = true, .loss = true, .status = 502 },
    [RETRY_TAKEN] = { .charged = true, .loss = true, .status = 502 },
    [RETRY_SILENT] = { .charged = true, .loss = true, .status = 502 },
    [RETRY_OVERLOADED] = { .charged = true, .status = 503 },
    [RETRY_ERROR] = { .charged = true, .status = 502 },
    [RETRY_BROKEN] = { .charged = true, .loss = true, .status = 502 },
    [RETRY_LOCAL] = { .status = 503 },
};

void retry_budget_init(struct retry_budget *b)
{
    *b = (struct retry_budget){ .saved = RETRY_FLOOR * RETRY_REQUESTS };
}

void retry_budget_earn(struct retry_budget *b)
{
    if (b->saved < RETRY_SAVED_MAX * RETRY_REQUESTS) b->saved++;
}

static bool pay(struct retry_budget *b)
{
    if (b->saved < RETRY_REQUESTS) return false;
    b->saved -= RETRY_REQUESTS;
    return true;
}

struct retry_verdict retry_decide(struct retry_budget *b, struct retry_request *r,
                                  enum retry_failure failure)
{
    must(failure < RETRY_FAILURE_COUNT);
    r->crashes += rule[failure].crash;
    r->deaths += rule[failure].crash;
    r->losses += rule[failure].loss;
    if (r->answering) return (struct retry_verdict){ false, 0 };
    if (r->crashes >= RETRY_CRASHES_MAX || r->deaths >= RETRY_DEATHS_MAX)
        return (struct retry_verdict){ false, 422 };
    if (r->attempts >= RETRY_ATTEMPTS_MAX)
        return (struct retry_verdict){ false, rule[failure].status };
    bool free = rule[failure].loss && r->losses == 1;
    if (rule[failure].charged && !free && !pay(b))
        return (struct retry_verdict){ false, rule[failure].status };
    return (struct retry_verdict){ true, 0 };
}
