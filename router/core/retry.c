/* retry.c - the rules of retry.h as one table. */
#include "router/core/retry.h"

#include "base/core/err.h"

static const struct {
    bool charged;
    bool crash;
    bool loss; /* of an engine: the first is free */
    int status;
} rule[RETRY_FAILURE_COUNT] = {
    [RETRY_UNREACHABLE] = { .status = 503 },
    [RETRY_DIED] = { .charged = true, .crash = true, .loss = true, .status = 502 },
    [RETRY_SILENT] = { .charged = true, .loss = true, .status = 502 },
    [RETRY_OVERLOADED] = { .charged = true, .status = 503 },
    [RETRY_ERROR] = { .charged = true, .status = 502 },
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
