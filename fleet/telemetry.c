/* telemetry.c - keeps sliding windows and counters of one service at one router.
 *
 * Quantiles are exact. Each is found by selection, which takes time proportional to the window where
 * a sort would take a logarithm more: a router reports twice a second for every service. */
#include "fleet/telemetry.h"

#include "base/core/bits.h"

#include <math.h>

/* ---- lengths: a ring of sums by time of arrival, and one of the queue ---- */

void length_window_arrived(struct length_window *r, double prompt, double output, int64_t now_us)
{
    int64_t number = now_us / LENGTH_BUCKET_US;
    uint32_t at = (uint32_t)(number % LENGTH_BUCKETS);
    if (r->number[at] != number + 1) {
        r->length[at] = (struct lengths){ 0 };
        r->number[at] = number + 1;
    }
    lengths_add(&r->length[at], prompt, output, 1);
    lengths_add(&r->queued, prompt, output, 1);
    r->arrived_us = now_us;
}

void length_window_left(struct length_window *r, double prompt, double output)
{
    lengths_add(&r->queued, prompt, output, -1);
    if (r->queued.count < 0.5) r->queued = (struct lengths){ 0 }; /* drops rounding */
}

/* Adds sums to sums; the result is not a mean yet. */
static void add_sums(struct lengths *to, const struct lengths *from)
{
    to->count += from->count;
    to->prompt += from->prompt;
    to->output += from->output;
    to->prompt_sq += from->prompt_sq;
    to->output_sq += from->output_sq;
    to->cross += from->cross;
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            to->bin[i][k] += from->bin[i][k];
}

void length_window_expected(const struct length_window *r, uint32_t buckets, int64_t now_us,
                            struct lengths *ret)
{
    int64_t number = now_us / LENGTH_BUCKET_US;
    struct lengths sum = { 0 };
    for (uint32_t i = 0; i < LENGTH_BUCKETS; i++) {
        int64_t at = r->number[i] - 1;
        if (at < 0 || at > number || number - at >= buckets) continue;
        add_sums(&sum, &r->length[i]);
    }
    lengths_mean(&sum);
    if (sum.count > 0) sum.age_s = (double)(now_us - r->arrived_us) / 1e6;
    *ret = sum;
}

void length_window_queued(const struct length_window *r, struct lengths *ret)
{
    *ret = r->queued;
    lengths_mean(ret);
}

void value_window_add(struct value_window *w, double value, int64_t now_us)
{
    w->value[w->next] = value;
    w->at_us[w->next] = now_us;
    w->next = (w->next + 1) % TELEMETRY_SAMPLES_MAX;
    if (w->count < TELEMETRY_SAMPLES_MAX) w->count++;
}

/* Returns the value of rank `k` by Hoare's selection (Wirth's form). Reorders `v` so that no value from `k`
 * on is smaller; none before `low` is larger than those behind it. */
static double select_rank(double *v, int32_t low, int32_t count, int32_t k)
{
    int32_t high = count - 1;
    while (low < high) {
        double pivot = v[k];
        int32_t i = low, j = high;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (pivot < v[j])
                j--;
            if (i > j) break;
            double swapped = v[i];
            v[i++] = v[j];
            v[j--] = swapped;
        }
        if (j < k) low = i;
        if (k < i) high = j;
    }
    return v[k];
}

void value_window_quantiles(const struct value_window *w, int64_t now_us,
                            struct wire_quantiles *ret)
{
    double recent[TELEMETRY_SAMPLES_MAX], sum = 0;
    int32_t n = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        if (now_us - w->at_us[i] > TELEMETRY_WINDOW_US) continue;
        recent[n++] = w->value[i];
        sum += w->value[i];
    }
    *ret = (struct wire_quantiles){ .count = (uint64_t)n };
    if (n == 0) return;
    ret->mean = sum / (double)n;
    const int32_t half = (n - 1) / 2, nine = (n - 1) * 9 / 10;
    ret->p50 = select_rank(recent, 0, n, half);
    ret->p90 = select_rank(recent, half, n, nine);
    ret->p99 = select_rank(recent, nine, n, (n - 1) * 99 / 100);
}

double value_window_per_s(const struct value_window *w, int64_t now_us)
{
    uint32_t n = 0;
    int64_t oldest_us = now_us;
    for (uint32_t i = 0; i < w->count; i++) {
        if (now_us - w->at_us[i] > TELEMETRY_WINDOW_US) continue;
        n++;
        oldest_us = min_i64(oldest_us, w->at_us[i]);
    }
    /* If all samples are recent, older ones of the window may have been overwritten. */
    bool overrun = n == TELEMETRY_SAMPLES_MAX;
    int64_t span_us = overrun ? max_i64(now_us - oldest_us, 1000) : TELEMETRY_WINDOW_US;
    return (double)n / ((double)span_us * 1e-6);
}

/* ---- events ---- */

void telemetry_arrived(struct telemetry *t, uint32_t prompt_tokens, double predicted_tokens,
                       int64_t now_us)
{
    t->total.arrivals_total++;
    value_window_add(&t->arrivals, prompt_tokens, now_us);
    value_window_add(&t->predicted, predicted_tokens, now_us);
}

void telemetry_queued(struct telemetry *t, struct telemetry_place *place, double prompt,
                      double output, int64_t now_us)
{
    *place = (struct telemetry_place){ prompt, output, true };
    length_window_arrived(&t->lengths, prompt, output, now_us);
}

void telemetry_unqueued(struct telemetry *t, struct telemetry_place *place)
{
    if (!place->queued) return;
    place->queued = false;
    length_window_left(&t->lengths, place->prompt, place->output);
}

void telemetry_refused(struct telemetry *t)
{
    t->total.rejected_total++;
}

void telemetry_refused_late(struct telemetry *t, double ttft_s, int64_t now_us)
{
    telemetry_refused(t);
    value_window_add(&t->late, ttft_s, now_us);
}

void telemetry_failed(struct telemetry *t)
{
    t->total.failed_total++;
    t->total.slo_missed_total++;
}

bool telemetry_finished(struct telemetry *t, const struct telemetry_outcome *o, int64_t now_us)
{
    t->total.finished_total++;
    t->total.prompt_tokens_total += o->prompt_tokens;
    t->total.cached_tokens_total += o->cached_tokens;
    t->total.generated_tokens_total += o->generated_tokens;
    bool met = o->ttft_s <= o->ttft_slo_s && o->tpot_s <= o->tpot_slo_s;
    *(met ? &t->total.slo_met_total : &t->total.slo_missed_total) += 1;
    value_window_add(&t->ttft_s, o->ttft_s, now_us);
    if (o->tpot_s > 0) value_window_add(&t->tpot_s, o->tpot_s, now_us);
    value_window_add(&t->e2e_s, o->e2e_s, now_us);
    return met;
}

/* ---- the report ---- */

/* Rounds counts to whole requests, and raises each second moment to at least the square of its mean:
 * sums that rise and fall carry rounding errors. Returns false if no request is left. */
static bool lengths_fill(const struct lengths *l, struct lengths *ret)
{
    double prompt = fmax(0, l->prompt), output = fmax(0, l->output);
    struct lengths r = { .age_s = fmax(0, l->age_s),
                         .prompt = prompt,
                         .output = output,
                         .prompt_sq = fmax(prompt * prompt, l->prompt_sq),
                         .output_sq = fmax(output * output, l->output_sq),
                         .cross = fmax(0, l->cross) };
    for (uint32_t i = 0; i < LENGTH_BINS; i++) {
        for (uint32_t k = 0; k < LENGTH_BINS; k++) {
            r.bin[i][k] = roundf(fmaxf(0, l->bin[i][k]));
            r.count += (double)r.bin[i][k];
        }
    }
    *ret = r.count > 0 ? r : (struct lengths){ 0 };
    return r.count > 0;
}

void telemetry_report(const struct telemetry *t, int64_t now_us, struct service_demand *ret)
{
    struct wire_quantiles arrivals, predicted;
    value_window_quantiles(&t->arrivals, now_us, &arrivals);
    value_window_quantiles(&t->predicted, now_us, &predicted);
    *ret = t->total;
    ret->arrival_per_s = value_window_per_s(&t->arrivals, now_us);
    ret->late_refused_per_s = value_window_per_s(&t->late, now_us);
    ret->prompt_tokens_mean = arrivals.mean;
    ret->predicted_tokens_mean = predicted.mean;
    value_window_quantiles(&t->ttft_s, now_us, &ret->ttft_s);
    value_window_quantiles(&t->tpot_s, now_us, &ret->tpot_s);
    value_window_quantiles(&t->e2e_s, now_us, &ret->e2e_s);
    struct lengths lengths;
    length_window_expected(&t->lengths, LENGTH_BUCKETS, now_us, &lengths);
    ret->has_expected = lengths_fill(&lengths, &ret->expected);
    length_window_queued(&t->lengths, &lengths);
    ret->has_queued = lengths_fill(&lengths, &ret->queued);
}
