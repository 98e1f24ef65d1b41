/* f_openai.c - reads request bodies of all surfaces, of responses and of Anthropic's messages, replies of foreign
 * servers and event streams; the first byte selects which. Accepted input must be well-formed and inside its bounds. */
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/anthropic.h"
#include "base/wire/generate.h"
#include "base/wire/openai_forward.h"
#include "base/wire/openai_reply.h"
#include "base/wire/responses.h"
#include "base/wire/sse.h"
#include "tests/fuzz/fuzz.h"

#define ARENA_BYTES ((size_t)1 << 20)

static void must_be_json(struct str s, enum json_token last)
{
    struct json_reader r;
    json_reader_init(&r, s);
    must(json_skip(&r) == last && json_next(&r) == JSON_END);
}

static void check_request(const struct openai_request *q)
{
    const struct sampling *s = &q->sampling;
    must(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1);
    must(s->repetition_penalty > 0 && q->stop_count <= OPENAI_STOP_MAX);
    for (uint32_t i = 0; i < q->stop_count; i++)
        must(q->stop[i].len >= 1 && q->stop[i].len <= OPENAI_STOP_BYTES_MAX);
    must(!q->max_tokens || q->min_tokens <= q->max_tokens);
    if (q->surface == OPENAI_CHAT) must_be_json(q->messages, JSON_ARRAY_END);
    if (q->surface == OPENAI_COMPLETION) must(q->prompt.len || q->prompt_id_count);
    must(q->n >= 1 && q->best_of >= q->n && openai_outputs(q) <= OPENAI_CHOICES_MAX);
    for (uint32_t i = 0; q->prompts && i < q->prompt_count; i++)
        must(q->prompts[i].text.len || q->prompts[i].id_count);
    must(q->bias_count <= OPENAI_BIASES_MAX && (q->logprobs || !q->top_logprobs));
    if (q->tools.len) must_be_json(q->tools, JSON_ARRAY_END);
    if (q->chat_template_kwargs.len) must_be_json(q->chat_template_kwargs, JSON_OBJECT_END);
}

/* Checks that the engine accepts from the router what the router accepted from a client. */
static void check_passes_on(const struct openai_request *q, struct arena *arena)
{
    static const uint32_t ids[] = { 1, 2 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct generate_request back, g = { .id = STR("r"),
                                        .ids = ids,
                                        .id_count = 2,
                                        .prompt_tokens = 2,
                                        .sampling = q->sampling,
                                        .logprobs = q->logprobs,
                                        .top_logprobs = q->top_logprobs,
                                        .max_tokens = q->max_tokens ? q->max_tokens : 1,
                                        .min_tokens = q->min_tokens,
                                        .stop = q->stop,
                                        .stop_count = q->stop_count,
                                        .ignore_eos = q->ignore_eos };
    must(generate_encode(&g, &text) == 0);
    int rc = generate_decode(buf_view(&text), arena, &back, NULL);
    must(rc == 0 || rc == -ENOMEM);
    if (rc < 0) return;
    must(back.stop_count == q->stop_count && back.logprobs == q->logprobs);
    must(back.top_logprobs == q->top_logprobs);
    for (uint32_t i = 0; i < back.stop_count; i++)
        must(str_eq(back.stop[i], q->stop[i]));
}

/* Checks that a body goes on to an engine of another kind as JSON, and that nothing is changed twice. */
static void check_forwards(struct str body)
{
    const struct openai_forward f = { .model = STR("m\"x"),
                                      .cache_salt = STR("s"),
                                      .stream = true };
    CLEANUP(buf_fini) struct buf once = { 0 }, twice = { 0 };
    must(openai_forward(body, &f, &once) == 0);
    must_be_json(buf_view(&once), JSON_OBJECT_END);
    must(openai_forward(buf_view(&once), &f, &twice) == 0);
    must(str_eq(buf_view(&once), buf_view(&twice)));
}

/* Checks the texts of an accepted request for vectors. */
static void check_vectors(const struct openai_request *q)
{
    must(q->prompt_count >= 1 && q->prompt_count <= OPENAI_TEXTS_MAX && openai_outputs(q) == 1);
    for (uint32_t i = 0; i < q->prompt_count; i++)
        must(q->prompts[i].text.len || q->prompts[i].id_count);
    must((q->vectors.first_count > 0) == (q->surface != OPENAI_EMBED));
    must(q->vectors.first_count < q->prompt_count || q->surface == OPENAI_EMBED);
    must(q->vectors.cache_salt.len <= OPENAI_SALT_BYTES_MAX);
}

static void request(enum openai_surface surface, struct str body)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct openai_request req;
    struct openai_error e;
    arena_init(&arena, ARENA_BYTES);
    if (openai_parse(surface, body, &arena, &req, &e) == 0) {
        if (openai_wants_vectors(surface)) {
            check_vectors(&req);
        } else {
            check_request(&req);
            check_passes_on(&req, &arena);
        }
        check_forwards(body);
        return;
    }
    must(e.status >= 400 && e.message[0]);
    must(openai_error_render(&e, &out) == 0);
    must_be_json(buf_view(&out), JSON_OBJECT_END);
}

/* Checks that what becomes of a Messages request is JSON, and reads it as the chat that it is. */
static void message(struct str body)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct openai_error e;
    struct str chat;
    arena_init(&arena, ARENA_BYTES);
    if (anthropic_to_chat(ANTHROPIC_MESSAGES, body, &arena, &chat, &e) < 0) {
        must(e.status >= 400 && e.message[0]);
        return;
    }
    must_be_json(chat, JSON_OBJECT_END);
    request(OPENAI_CHAT, chat);
}

/* Does the same with a request for a response, and checks what the response repeats of it. */
static void response(struct str body)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf all = { 0 };
    struct openai_error e;
    struct str chat, repeated;
    arena_init(&arena, ARENA_BYTES);
    if (responses_to_chat(body, &arena, &chat, &repeated, &e) < 0) {
        must(e.status >= 400 && e.message[0]);
        return;
    }
    must_be_json(chat, JSON_OBJECT_END);
    buf_text(&all, "{\"a\":1");
    buf_str(&all, repeated);
    buf_byte(&all, '}');
    must_be_json(buf_view(&all), JSON_OBJECT_END);
    request(OPENAI_CHAT, chat);
}

static int event(void *arg, struct str data)
{
    struct openai_delta d = { 0 };
    return openai_delta_parse(data, arg, &d, NULL);
}

const struct fuzz_cost fuzz_cost = { 40000, 200 };

void fuzz_one(const uint8_t *data, size_t len)
{
    if (len == 0) return;
    struct str rest = str_of(data + 1, len - 1);
    CLEANUP(buf_fini) struct buf text = { .max = 4096 };
    struct sse_reader reader;
    switch (data[0]) {
    case 'c':
        request(OPENAI_CHAT, rest);
        break;
    case 'm':
        message(rest);
        break;
    case 'p':
        response(rest);
        break;
    case 't':
        request(OPENAI_COMPLETION, rest);
        break;
    case 'e':
        request(OPENAI_EMBED, rest);
        break;
    case 's':
        request(OPENAI_SCORE, rest);
        break;
    case 'k':
        request(OPENAI_RERANK, rest);
        break;
    case 'r':
        event(&text, rest);
        break;
    default:
        sse_reader_init(&reader, 1024);
        /* Fed in two parts, so that a line is carried over. */
        if (sse_reader_feed(&reader, str_of(rest.data, rest.len / 2), event, &text) == 0)
            sse_reader_feed(&reader, str_of(rest.data + rest.len / 2, rest.len - rest.len / 2),
                            event, &text);
        sse_reader_fini(&reader);
    }
}
