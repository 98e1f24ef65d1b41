/* scale_recent.c - a ring of sums of lengths, and the sums of what waits. */
#include "policies/scale_recent.h"

void scale_recent_arrived(struct scale_recent *r, double prompt, double output, int64_t now_us)
{
    int64_t number = now_us / SCALE_RECENT_BUCKET_US;
    uint32_t at = (uint32_t)(number % SCALE_RECENT_BUCKETS);
    if (r->number[at] != number + 1) {
        r->length[at] = (struct scale_lengths){ 0 };
        r->number[at] = number + 1;
    }
    scale_lengths_add(&r->length[at], prompt, output, 1);
    scale_lengths_add(&r->queued, prompt, output, 1);
    r->arrived_us = now_us;
}

void scale_recent_left(struct scale_recent *r, double prompt, double output)
{
    scale_lengths_add(&r->queued, prompt, output, -1);
    if (r->queued.count < 0.5) r->queued = (struct scale_lengths){ 0 }; /* rounding ends here */
}

/* Sums of two, kept as sums. */
static void add_sums(struct scale_lengths *to, const struct scale_lengths *from)
{
    to->count += from->count;
    to->prompt += from->prompt;
    to->output += from->output;
    to->prompt_sq += from->prompt_sq;
    to->output_sq += from->output_sq;
    to->cross += from->cross;
    for (uint32_t i = 0; i < SCALE_LENGTH_BINS; i++)
        for (uint32_t k = 0; k < SCALE_LENGTH_BINS; k++)
            to->bin[i][k] += from->bin[i][k];
}

void scale_recent_expected(const struct scale_recent *r, uint32_t buckets, int64_t now_us,
                           struct scale_lengths *ret)
{
    int64_t number = now_us / SCALE_RECENT_BUCKET_US;
    struct scale_lengths sum = { 0 };
    for (uint32_t i = 0; i < SCALE_RECENT_BUCKETS; i++) {
        int64_t at = r->number[i] - 1;
        if (at < 0 || at > number || number - at >= buckets) continue;
        add_sums(&sum, &r->length[i]);
    }
    scale_lengths_mean(&sum);
    if (sum.count > 0) sum.age_s = (double)(now_us - r->arrived_us) / 1e6;
    *ret = sum;
}

void scale_recent_queued(const struct scale_recent *r, struct scale_lengths *ret)
{
    *ret = r->queued;
    scale_lengths_mean(ret);
}
