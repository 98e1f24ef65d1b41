/* sizing.c - shares, lengths and speeds from what was measured.
 *
 *     share    = PART * cores / largest, 1 at most      the rest is for router, controller and load
 *     longest  = PROMPT_PART * SLO * smallest * share / prefill_token_s
 *     speed    = cores wanted / (CPU seconds of the slice / its length)
 *
 * The load is thus the same part of the fleet's capacity on every machine. On a slow machine prompts
 * shrink too, together with the blocks that they share: a promised TTFT is in seconds, and a prompt
 * that takes longer than it to compute would be late on an empty fleet. Rejected: a longer SLO, which
 * would make the promise follow the machine.
 */
#include "cli/demo/sizing.h"

#include "base/core/bits.h"

#include <math.h>

#define PART 0.6
#define SHARE_LEAST 0.05 /* of a core: an engine refuses less */
#define PROMPT_PART 0.3
#define PROMPT_MIN 64
#define OUTPUT_TOKENS 60 /* mean of the shipped model's responses to replayed prompts, rounded up */
#define BATCH 2          /* sequences that share a decode step, in the mean */
#define SPEED_ROUNDS 4   /* the slice depends on the speed and the speed on the slice */
#define SPEED_MIN 0.1
#define SPEED_MAX 100

struct demo_sizing demo_size(const struct demo_machine *m, const struct demo_shape *shape)
{
    double least = fmin(1, SHARE_LEAST / shape->smallest);
    struct demo_sizing s = { .share = fmax(fmin(1, PART * m->cores / shape->largest), least) };
    double longest_s = PROMPT_PART * shape->slo_ttft_s * shape->smallest * s.share;
    double longest = floor(longest_s / m->prefill_token_s);
    s.lengths.tokens_max = (uint32_t)fmin(fmax(longest, PROMPT_MIN), DEMO_PROMPT_MAX);
    s.lengths.divide = DEMO_DIVIDE_MIN;
    while (s.lengths.divide < DEMO_DIVIDE_MAX &&
           s.lengths.divide * s.lengths.tokens_max < DEMO_DIVIDE_MIN * DEMO_PROMPT_MAX * 3 / 5) {
        s.lengths.divide *= 2; /* whole blocks of keys stay shared */
    }
    return s;
}

double demo_request_s(const struct demo_machine *m, const struct demo_lengths *lengths,
                      uint32_t prompt_tokens)
{
    uint32_t prompt = min_u32(max_u32(prompt_tokens / lengths->divide, 1), lengths->tokens_max);
    return prompt * m->prefill_token_s + OUTPUT_TOKENS * (m->decode_seq_s + m->step_s / BATCH);
}

double demo_speed(const struct demo_machine *m, const struct demo_lengths *lengths,
                  const struct trace *trace, uint32_t first, int64_t span_us, double cores)
{
    double speed = 1;
    for (uint32_t round = 0; round < SPEED_ROUNDS; round++) {
        double work_s = 0, trace_us = (double)span_us * speed;
        int64_t from_us = trace->request[first].at_us;
        int64_t last_us = trace->request[trace->count - 1].at_us - from_us;
        if (trace_us > (double)last_us) trace_us = (double)last_us;
        for (uint32_t i = first; i < trace->count; i++) {
            if ((double)(trace->request[i].at_us - from_us) >= trace_us) break;
            work_s += demo_request_s(m, lengths, trace->request[i].prompt_tokens);
        }
        speed = cores / (work_s / (trace_us * 1e-6));
        speed = fmin(fmax(speed, SPEED_MIN), SPEED_MAX);
    }
    return speed;
}

/* The integral of the rate: BEFORE_RATE, a line up to 1 over RAMP, then 1. */
#define BEFORE_PASSED ((double)DEMO_BEFORE_US * DEMO_BEFORE_RATE)
#define RAMP_PASSED ((double)DEMO_RAMP_US * (1 + DEMO_BEFORE_RATE) / 2)

int64_t demo_ramp_passed_us(int64_t us)
{
    double t = (double)us;
    if (t <= DEMO_BEFORE_US) return (int64_t)(t * DEMO_BEFORE_RATE);
    t -= DEMO_BEFORE_US;
    if (t >= DEMO_RAMP_US) return (int64_t)(BEFORE_PASSED + RAMP_PASSED + t - DEMO_RAMP_US);
    double slope = (1 - DEMO_BEFORE_RATE) / DEMO_RAMP_US;
    return (int64_t)(BEFORE_PASSED + DEMO_BEFORE_RATE * t + slope * t * t / 2);
}

int64_t demo_ramp_us(int64_t full_speed_us)
{
    double x = (double)full_speed_us;
    if (x <= BEFORE_PASSED) return (int64_t)(x / DEMO_BEFORE_RATE);
    x -= BEFORE_PASSED;
    if (x >= RAMP_PASSED) return (int64_t)(DEMO_BEFORE_US + DEMO_RAMP_US + x - RAMP_PASSED);
    double slope = (1 - DEMO_BEFORE_RATE) / DEMO_RAMP_US;
    double t =
        (sqrt(DEMO_BEFORE_RATE * DEMO_BEFORE_RATE + 2 * slope * x) - DEMO_BEFORE_RATE) / slope;
    return (int64_t)(DEMO_BEFORE_US + t);
}
