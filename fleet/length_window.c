/* length_window.c - keeps sums of lengths: a ring of them by time of arrival, and one of the queue. */
#include "fleet/length_window.h"

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
