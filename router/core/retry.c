/* retry.c - the rules of retry.h as one table. */
#include "router/core/retry.h"

#include "base/core/err.h"

static const struct {
    bool charged;
    bool crash;
    int status;
} rule[RETRY_FAILURE_COUNT] = {
    [RETRY_UNREACHABLE] = { false, false, 503 },
    [RETRY_DIED] = { true, true, 502 },
    [RETRY_OVERLOADED] = { true, false, 503 },
    [RETRY_ERROR] = { true, false, 502 },
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
    if (rule[failure].crash) r->crashes++;
    if (r->answering) return (struct retry_verdict){ false, 0 };
    if (r->crashes >= RETRY_CRASHES_MAX) return (struct retry_verdict){ false, 422 };
    if (r->attempts >= RETRY_ATTEMPTS_MAX)
        return (struct retry_verdict){ false, rule[failure].status };
    if (rule[failure].charged && !pay(b))
        return (struct retry_verdict){ false, rule[failure].status };
    return (struct retry_verdict){ true, 0 };
}
