/* question.c - appends a second user message, generates eight tokens at temperature 0 and reads the first
 * number in them. */
#include "router/question.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "router/byte_loop.h"
#include "router/generate.h"

#include <stdio.h>

/* Returns the messages with the question behind them; messages are an array that was checked. */
static struct str with_question(struct arena *arena, const struct openai_request *api)
{
    CLEANUP(buf_fini) struct buf text = { .max = REQUEST_ARENA_BYTES_MAX };
    if (api->surface == OPENAI_COMPLETION) {
        buf_str(&text, api->prompt);
        buf_text(&text, "\n\n" QUESTION_TEXT);
    } else {
        size_t end = api->messages.len;
        while (end > 0 && api->messages.data[end - 1] != ']')
            end--;
        if (end == 0) return (struct str){ 0 };
        buf_str(&text, str_of(api->messages.data, end - 1));
        buf_text(&text, ",{\"role\":\"user\",\"content\":\"" QUESTION_TEXT "\"}]");
    }
    return text.rc < 0 ? (struct str){ 0 } : arena_str(arena, buf_view(&text));
}

/* Fills the question with copies: when the client leaves, the bytes that its request points to go too. */
static bool fill(struct request *q, const struct request *r, const struct snapshot_model *m)
{
    struct str text = with_question(&q->client.arena, &r->client.api);
    q->client.api = (struct openai_request){ .surface = r->client.api.surface,
                                             .sampling = SAMPLING_DEFAULT,
                                             .max_tokens = QUESTION_TOKENS_MAX };
    q->client.api.sampling.temperature = 0;
    q->client.api.chat_template_kwargs =
        arena_str(&q->client.arena, r->client.api.chat_template_kwargs);
    *(r->client.api.surface == OPENAI_CHAT ? &q->client.api.messages : &q->client.api.prompt) =
        text;
    q->client.api.last_text = STR(QUESTION_TEXT);
    q->client.api.last_answer = arena_str(&q->client.arena, r->client.api.last_answer);
    q->client.api.last_system = arena_str(&q->client.arena, r->client.api.last_system);
    q->client.salt = arena_str(&q->client.arena, r->client.salt);
    q->client.adapter = arena_str(&q->client.arena, r->client.adapter);
    q->mail.arrival.adapter = r->mail.arrival.adapter;
    memcpy(q->mail.arrival.tenant_name, r->mail.arrival.tenant_name,
           sizeof q->mail.arrival.tenant_name);
    snprintf(q->id, sizeof q->id, "q-%.*s", REQUEST_ID_MAX - 2, r->id);
    return text.len > 0 && prompt_ready(q, m) == 0;
}

bool question_ask(struct request *r, const struct snapshot_model *m)
{
    struct byte_loop *b = r->home;
    if (!b->asks_lengths || !r->client.bundle || r->client.api.prompt_ids) return false;
    if (r->client.body.len > TEXT_INLINE_BYTES) return false;
    struct request *q =
        request_take(b, min_i64(r->client.deadline_us, r->client.arrived_us + QUESTION_US_MAX),
                     upstream_deadline);
    if (!q) return false;
    q->is_question = true;
    if (!fill(q, r, m) || loop_timer_set(b->loop, &q->client.deadline, q->client.deadline_us) < 0) {
        request_release(q);
        return false;
    }
    q->client.asker = r;
    r->client.question = q;
    request_arrive(q);
    return true;
}

/* Returns the first number in the text; 0 where there is none, or one above OPENAI_TOKENS_MAX. */
static uint32_t first_number(struct str text)
{
    size_t from = 0;
    while (from < text.len && (text.data[from] < '0' || text.data[from] > '9'))
        from++;
    uint64_t number = 0;
    for (size_t i = from; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
        number = number * 10 + (uint64_t)(text.data[i] - '0');
        if (number > OPENAI_TOKENS_MAX) return 0;
    }
    return (uint32_t)number;
}

void question_answered(struct request *q)
{
    metric_add(metric_of(q->home->metrics, RM_QUESTION_TOKENS),
               q->client.usage.prompt_tokens + q->client.usage.generated_tokens);
    struct request *r = q->client.asker;
    if (!r) return;
    q->client.asker = r->client.question = NULL;
    if (q->client.outcome.ok)
        r->mail.arrival.features.reported_tokens = first_number(buf_view(&q->client.output));
    request_arrive(r);
}
