/* services.c - sliding windows and counters by service. */
#include "router/services.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <math.h>
#include <stdlib.h>

void window_add(struct window *w, double value, int64_t now_us)
{
    w->value[w->next] = value;
    w->at_us[w->next] = now_us;
    w->next = (w->next + 1) % WINDOW_SAMPLES_MAX;
    if (w->count < WINDOW_SAMPLES_MAX) w->count++;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void window_quantiles(const struct window *w, int64_t now_us, struct wire_quantiles *ret)
{
    double recent[WINDOW_SAMPLES_MAX], sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        if (now_us - w->at_us[i] > WINDOW_US) continue;
        recent[n++] = w->value[i];
        sum += w->value[i];
    }
    *ret = (struct wire_quantiles){ .count = n };
    if (n == 0) return;
    qsort(recent, n, sizeof recent[0], by_value);
    ret->mean = sum / (double)n;
    ret->p50 = recent[(n - 1) / 2];
    ret->p90 = recent[(n - 1) * 9 / 10];
    ret->p99 = recent[(n - 1) * 99 / 100];
}

int services_new(struct services *s)
{
    s->item = calloc(SYNC_SERVICES_MAX, sizeof *s->item);
    s->count = 0;
    return s->item ? 0 : -ENOMEM;
}

void services_fini(struct services *s)
{
    free(s->item);
    *s = (struct services){ 0 };
}

struct service *services_by_hash(struct services *s, uint64_t hash)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->item[i].hash == hash) return &s->item[i];
    }
    return NULL;
}

struct service *services_get(struct services *s, struct str name)
{
    uint64_t hash = hash64(name.data, name.len, 0);
    struct service *known = services_by_hash(s, hash);
    if (known) return known;
    if (s->count == SYNC_SERVICES_MAX || name.len == 0 || name.len >= SERVICE_NAME_MAX) return NULL;
    struct service *made = &s->item[s->count++];
    *made = (struct service){ .hash = hash };
    memcpy(made->name, name.data, name.len);
    return made;
}

void services_remove(struct services *s, uint32_t at)
{
    must(at < s->count);
    s->item[at] = s->item[--s->count];
}

double window_per_s(const struct window *w, int64_t now_us)
{
    uint32_t n = 0;
    int64_t oldest_us = now_us;
    for (uint32_t i = 0; i < w->count; i++) {
        if (now_us - w->at_us[i] > WINDOW_US) continue;
        n++;
        oldest_us = min_i64(oldest_us, w->at_us[i]);
    }
    /* All samples are recent: older ones of the window were overwritten. */
    bool overrun = n == WINDOW_SAMPLES_MAX;
    int64_t span_us = overrun ? max_i64(now_us - oldest_us, 1000) : WINDOW_US;
    return (double)n / ((double)span_us * 1e-6);
}

_Static_assert(WIRE_LENGTH_BINS == SCALE_LENGTH_BINS, "bins of the wire and of the policies");

/* The message's own: whole requests, and no moment below what its mean allows, which rounding of
 * sums that rise and fall could bring. */
static bool lengths_fill(const struct scale_lengths *l, uint32_t bins[WIRE_LENGTH_PLACES],
                         struct wire_lengths *ret)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < WIRE_LENGTH_PLACES; i++) {
        bins[i] =
            (uint32_t)lround(fmax(0, (double)l->bin[i / WIRE_LENGTH_BINS][i % WIRE_LENGTH_BINS]));
        count += bins[i];
    }
    double prompt = fmax(0, l->prompt), output = fmax(0, l->output);
    *ret = (struct wire_lengths){ .count = (double)count,
                                  .age_s = fmax(0, l->age_s),
                                  .prompt = prompt,
                                  .output = output,
                                  .prompt_sq = fmax(prompt * prompt, l->prompt_sq),
                                  .output_sq = fmax(output * output, l->output_sq),
                                  .cross = fmax(0, l->cross),
                                  .bins = bins,
                                  .bin_count = WIRE_LENGTH_PLACES };
    return count > 0;
}

void service_demand_fill(const struct service *s, int64_t now_us, struct service_bins *bins,
                         struct service_demand *ret)
{
    struct wire_quantiles arrivals, predicted;
    window_quantiles(&s->arrivals, now_us, &arrivals);
    window_quantiles(&s->predicted, now_us, &predicted);
    *ret = s->total;
    ret->service = str_from(s->name);
    ret->arrival_per_s = window_per_s(&s->arrivals, now_us);
    ret->prompt_tokens_mean = arrivals.mean;
    ret->predicted_tokens_mean = predicted.mean;
    window_quantiles(&s->ttft_s, now_us, &ret->ttft_s);
    window_quantiles(&s->tpot_s, now_us, &ret->tpot_s);
    window_quantiles(&s->e2e_s, now_us, &ret->e2e_s);
    struct scale_lengths lengths;
    scale_recent_expected(&s->recent, SCALE_RECENT_BUCKETS, now_us, &lengths);
    ret->has_expected = lengths_fill(&lengths, bins->expected, &ret->expected);
    scale_recent_queued(&s->recent, &lengths);
    ret->has_queued = lengths_fill(&lengths, bins->queued, &ret->queued);
}
