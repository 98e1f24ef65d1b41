/* history.c - judges each event as it arrives; a request's memory does not grow with its output.
 *
 * Only the position in the output is kept, never the output: each piece is compared with the
 * expected text when it arrives.
 */
#include "tests/history/history.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MIN 256
#define MONEY_SLACK 1e-6

struct history_request {
    bool sent, over;
    enum history_key key;
    uint64_t tokens, bytes; /* received */
    uint64_t tokens_expected;
    struct str expected;
    int64_t last_us; /* of the newest sign of life */
};

const char *const history_rule_names[HISTORY_RULE_COUNT] = {
    [HISTORY_KEYS] = "keys",         [HISTORY_TOKENS] = "tokens",   [HISTORY_GAPS] = "gaps",
    [HISTORY_OUTCOMES] = "outcomes", [HISTORY_REASONS] = "reasons", [HISTORY_SPEND] = "spend",
};

static void violate(struct history *h, enum history_rule rule, int64_t at_us, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));

static void violate(struct history *h, enum history_rule rule, int64_t at_us, const char *format,
                    ...)
{
    if (h->violated) return;
    h->violated = true;
    h->rule = rule;
    h->at_us = at_us;
    va_list ap;
    va_start(ap, format);
    vsnprintf(h->text, sizeof h->text, format, ap);
    va_end(ap);
}

void history_init(struct history *h, const struct history_limits *limits)
{
    *h = (struct history){ .limits = *limits };
}

void history_fini(struct history *h)
{
    free(h->request);
    *h = (struct history){ 0 };
}

static struct history_request *place(struct history *h, uint32_t request)
{
    must(request < HISTORY_REQUESTS_MAX);
    if (request >= h->request_count) {
        uint32_t count = max_u32(max_u32(PLACES_MIN, request + 1), h->request_count * 2);
        h->request = realloc(h->request, count * sizeof *h->request);
        must(h->request);
        memset(&h->request[h->request_count], 0, (count - h->request_count) * sizeof *h->request);
        h->request_count = count;
    }
    return &h->request[request];
}

void history_sent(struct history *h, uint32_t request, enum history_key key, int64_t now_us)
{
    struct history_request *r = place(h, request);
    must(!r->sent); /* a client that retries starts a new request */
    r->sent = true;
    r->key = key;
    r->last_us = now_us;
}

void history_expects(struct history *h, uint32_t request, uint64_t tokens, struct str text)
{
    struct history_request *r = place(h, request);
    r->tokens_expected = tokens;
    r->expected = text;
}

static bool may_be_served(const struct history_request *r)
{
    return r->key == HISTORY_KEY_NOT_ASKED || r->key == HISTORY_KEY_VALID;
}

static const char *key_text(const struct history_request *r)
{
    return r->key == HISTORY_KEY_MISSING ? "no key" : "an invalid key";
}

/* Judges the time since the request's newest sign of life. */
static void judge_gap(struct history *h, uint32_t request, const struct history_request *r,
                      int64_t now_us)
{
    bool begun = r->tokens > 0 || r->bytes > 0;
    int64_t most_us = begun ? h->limits.gap_us_max : h->limits.first_us_max;
    if (most_us > 0 && now_us - r->last_us > most_us)
        violate(h, HISTORY_GAPS, now_us, "request %u: %.3f s without a token, at most %.3f s",
                request, (double)(now_us - r->last_us) / 1e6, (double)most_us / 1e6);
}

static void judge_text(struct history *h, uint32_t request, const struct history_request *r,
                       struct str text, int64_t now_us)
{
    if (!r->expected.data || text.len == 0) return;
    bool fits = r->bytes + text.len <= r->expected.len;
    if (!fits || memcmp(r->expected.data + r->bytes, text.data, text.len) != 0)
        violate(h, HISTORY_TOKENS, now_us,
                "request %u: \"%.*s\" at byte %" PRIu64 " is not what is expected there", request,
                (int)min_u32((uint32_t)text.len, 64), text.data, r->bytes);
}

void history_tokens(struct history *h, uint32_t request, uint64_t index, uint64_t count,
                    struct str text, int64_t now_us)
{
    struct history_request *r = place(h, request);
    if (!r->sent)
        violate(h, HISTORY_TOKENS, now_us, "request %u: tokens before it was sent", request);
    if (r->over)
        violate(h, HISTORY_OUTCOMES, now_us, "request %u: tokens after its outcome", request);
    if (!may_be_served(r))
        violate(h, HISTORY_KEYS, now_us, "request %u: tokens with %s", request, key_text(r));
    judge_gap(h, request, r, now_us);
    if (index != HISTORY_INDEX_UNKNOWN && index != r->tokens)
        violate(h, HISTORY_TOKENS, now_us,
                "request %u: token %" PRIu64 " came where token %" PRIu64 " was due (%s)", request,
                index, r->tokens, index < r->tokens ? "repeated" : "lost");
    judge_text(h, request, r, text, now_us);
    r->tokens += count;
    r->bytes += text.len;
    r->last_us = now_us;
}

static void judge_whole(struct history *h, uint32_t request, const struct history_request *r,
                        int64_t now_us)
{
    if (r->tokens_expected && r->tokens != r->tokens_expected)
        violate(h, HISTORY_TOKENS, now_us,
                "request %u finished with %" PRIu64 " of %" PRIu64 " tokens", request, r->tokens,
                r->tokens_expected);
    if (r->expected.data && r->bytes != r->expected.len)
        violate(h, HISTORY_TOKENS, now_us, "request %u finished with %" PRIu64 " of %zu bytes",
                request, r->bytes, r->expected.len);
}

void history_over(struct history *h, uint32_t request, enum history_outcome outcome, int64_t now_us)
{
    struct history_request *r = place(h, request);
    if (!r->sent)
        violate(h, HISTORY_OUTCOMES, now_us, "request %u: an outcome before it was sent", request);
    if (r->over) violate(h, HISTORY_OUTCOMES, now_us, "request %u: a second outcome", request);
    r->over = true;
    if (outcome != HISTORY_ERROR) judge_gap(h, request, r, now_us);
    if (outcome != HISTORY_FINISHED) return;
    if (!may_be_served(r))
        violate(h, HISTORY_KEYS, now_us, "request %u: success with %s", request, key_text(r));
    judge_whole(h, request, r, now_us);
}

static bool is_accepted(const struct history *h, const char *reason)
{
    if (!reason || !reason[0]) return false;
    if (!h->limits.reasons) return true;
    for (const char *const *word = h->limits.reasons; *word; word++)
        if (strstr(reason, *word)) return true;
    return false;
}

void history_instance_ended(struct history *h, const char *instance, const char *reason,
                            int64_t now_us)
{
    if (is_accepted(h, reason)) return;
    bool any = reason && reason[0];
    violate(h, HISTORY_REASONS, now_us, "instance %s ended %s%s", instance,
            any ? "for a reason that is none: " : "without a reason", any ? reason : "");
}

void history_spend(struct history *h, double dollars_h, int64_t now_us)
{
    double most = h->limits.spend_h_max;
    if (most > 0 && dollars_h > most + MONEY_SLACK)
        violate(h, HISTORY_SPEND, now_us, "the fleet costs $%.4f/h, the budget is $%.4f/h",
                dollars_h, most);
}

const char *history_judge(struct history *h, int64_t now_us)
{
    for (uint32_t i = 0; i < h->request_count; i++) {
        const struct history_request *r = &h->request[i];
        if (!r->sent || r->over) continue;
        judge_gap(h, i, r, now_us);
        violate(h, HISTORY_OUTCOMES, now_us, "request %u has no outcome", i);
    }
    return h->violated ? h->text : NULL;
}
