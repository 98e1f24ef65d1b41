/* legs.c - an answer over several engines: what is kept between them, what the next one is told.
 *
 * A leg is one call to one engine. What it generated is kept as ids behind the prompt's, so that
 * the next leg goes on from there: after a failure, after a prompt that another instance computed,
 * after a move. An engine primes its detokeniser and its stop strings with those ids, so text goes
 * on where it stopped. Kept are counts and times of the whole answer, and of the cache what the
 * first leg found.
 */
#include "base/core/bits.h"
#include "router/byte_loop.h"

#define WHOLE_BYTES_MAX ((size_t)64 << 20) /* of an answer that is sent whole */
#define REFUSAL_BYTES_MAX ((size_t)64 << 10)
#define EVENT_BYTES_MAX ((size_t)1 << 20)

uint32_t leg_generated(const struct request *r)
{
    return (uint32_t)r->ids.count - r->prompt_tokens;
}

/* Tokens that the answer may still have. */
static uint32_t left(const struct request *r)
{
    uint32_t prompt = r->prompt_tokens, generated = leg_generated(r);
    uint32_t context = r->target.context_tokens ? r->target.context_tokens : OPENAI_TOKENS_MAX;
    uint32_t most = context > prompt ? context - prompt : 1;
    if (r->api.max_tokens > 0) most = min_u32(most, r->api.max_tokens);
    return most > generated ? most - generated : 0;
}

/* The engine went between its last token and its last word. What it held back of the text, a
 * character that is not complete or the beginning of a stop string, went with it. */
static bool is_complete(struct request *r)
{
    if (leg_generated(r) == 0) return false;
    const struct vocab_special *special = vocab_special(r->bundle->bundle.vocab);
    uint32_t last = r->ids.data[r->ids.count - 1];
    if (!r->api.ignore_eos && (last == special->eos || last == special->eot)) {
        r->finish = FINISH_STOP;
        return true;
    }
    r->finish = left(r) == 0 ? FINISH_LENGTH : FINISH_NONE;
    return r->finish != FINISH_NONE;
}

/* As if it had just come, but for its seed: every attempt would answer alike. */
static void forget(struct request *r)
{
    r->ids.count = r->prompt_tokens;
    r->ids_lost = false;
    buf_fini(&r->answer);
    buf_init(&r->answer, WHOLE_BYTES_MAX);
    r->usage = (struct usage){ 0 };
    if (!r->began) r->first_us = 0;
}

int leg_begin(struct request *r)
{
    bool same = r->target.kind == ENGINE_MUSTER && r->target.bundle == r->bundle;
    line_reader_fini(&r->lines);
    sse_reader_fini(&r->events);
    buf_fini(&r->refusal);
    line_reader_init(&r->lines, GENERATE_FRAME_BYTES_MAX);
    sse_reader_init(&r->events, EVENT_BYTES_MAX);
    buf_init(&r->refusal, REFUSAL_BYTES_MAX);
    r->finish = FINISH_NONE;
    r->upstream_status = 0;
    r->paused = r->leg_hands = false;
    if (!r->api.sampling.has_seed) {
        r->api.sampling.has_seed = true;
        r->api.sampling.seed = rng_u64(&r->home->rng) >> 11; /* exact in JSON of any reader */
    }
    bool goes_on = leg_generated(r) > 0 && same && !r->ids_lost;
    if (!goes_on && leg_generated(r) > 0 && r->began) return -ESTALE;
    if (!goes_on) forget(r);
    if (goes_on && r->broken) metric_inc(metric_of(r->home->metrics, RM_CONTINUED));
    r->broken = false;
    r->leg_from = leg_generated(r);
    r->usage.generated_tokens = r->leg_from;
    return is_complete(r);
}

static uint32_t still(double predicted, uint32_t generated)
{
    uint32_t tokens = (uint32_t)predicted;
    if (tokens == 0 || generated == 0) return tokens;
    return tokens > generated ? tokens - generated : 1;
}

int leg_body(struct request *r, struct buf *out)
{
    const struct target *t = &r->target;
    uint32_t generated = leg_generated(r);
    int64_t left_us = r->deadline_us - loop_now_us(r->home->loop);
    r->leg_hands = t->hands_over && !r->is_question && left(r) > 1;
    struct fleet_ticket ticket = { 0 };
    bool reads = t->kv_port > 0 &&
                 fleet_ticket_make(r->home->link, t->kv_instance, t->kv_host, t->kv_port,
                                   t->instance, r->salt, loop_now_us(r->home->loop), &ticket);
    struct generate_request g = {
        .id = str_from(r->id),
        .ids = r->ids.data,
        .id_count = (uint32_t)r->ids.count,
        .prompt_tokens = r->prompt_tokens,
        .sampling = r->api.sampling,
        .max_tokens = r->leg_hands ? 1 : max_u32(left(r), 1),
        .min_tokens = r->api.min_tokens,
        .stop = r->api.stop,
        .stop_count = r->api.stop_count,
        .ignore_eos = r->api.ignore_eos,
        .tenant = r->salt,
        .deadline_ms = (uint32_t)max_i64(left_us / 1000, 1),
        .predicted_p50 = still(t->length_p50, generated),
        .predicted_p90 = still(t->length_p90, generated),
        .predicted_mean = still(t->length_mean, generated),
        .goes_on = r->leg_hands,
        .kv_host = str_from(reads ? t->kv_host : ""),
        .kv_port = reads ? t->kv_port : 0,
        .kv_ticket = str_from(ticket.text),
        .kv_key = str_from(ticket.key),
        .kv_tls = t->kv_tls,
    };
    return generate_encode(&g, out);
}

void leg_frame(struct request *r, const struct generate_frame *frame)
{
    bool first = r->leg_from == 0;
    for (uint32_t i = 0; i < frame->id_count && !r->ids_lost; i++)
        r->ids_lost = ids_push(&r->ids, frame->ids[i]) < 0;
    if (frame->id_count > 0) {
        /* Counted as they come, for clients that leave before the engine's own count. */
        r->usage.prompt_tokens = r->prompt_tokens;
        r->usage.generated_tokens += frame->id_count;
        request_tokens(r, frame->id_count);
    }
    if (!frame->has_usage) return;
    if (first) r->usage = frame->usage;
    r->usage.generated_tokens = r->leg_from + frame->usage.generated_tokens;
}
