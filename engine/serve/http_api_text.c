/* http_api_text.c - turns request bodies into token ids: small ones here, large ones on a text worker.
 *
 *     small ──────────────────────────────► make ──► made: a call, or a reply
 *     large ──► waiting ──► worker: make ──► made
 *                  │
 *                  └─ the client left: taken back, or dropped when the worker is done
 *
 * `make` reads the body, the model's vocabulary and template and nothing else of the API: all of
 * that stays as it is while a worker reads it. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/loop/clock.h"
#include "base/text/detok.h"
#include "base/text/encode.h"
#include "base/wire/anthropic.h"
#include "base/wire/responses.h"
#include "engine/serve/http_api_call.h"
#include "engine/serve/http_api_embed.h"
#include "engine/serve/http_api_fan.h"
#include "engine/serve/http_api_generate.h"

#include <stdlib.h>

/* A body on its way to ids or to a reply. */
struct prompt {
    int (*make)(struct prompt *p);  /* any thread: negative with `e` filled */
    void (*made)(struct prompt *p); /* on the loop: replies to x */
    struct http_api *api;
    struct http_exchange *x;      /* NULL: the client has left */
    struct http_exchange *pinned; /* a worker reads its bytes */
    struct list link;
    struct text_job job;
    struct str body;
    struct arena arena; /* what `r` points into, beside the body */
    bool entered;       /* was at a worker */
    int rc;             /* of make */
    struct openai_error e;

    /* chat and completions */
    enum reply_style style;
    struct str repeated; /* of REPLY_RESPONSES */
    struct openai_request r;
    struct grammar *grammar;          /* compiled; NULL: none */
    struct generate_request generate; /* of a router */
    struct request_id id;
    int64_t deadline_us;         /* 0: none named */
    struct ids ids;              /* of a router's call, or of the prompt at hand */
    struct prompt_made *prompts; /* r.prompt_count, in the arena */
    struct turn_output *turn;    /* NULL: the output is not parsed */
    struct reasoning_limit limit;
    struct grammar_spec spec; /* of the grammar: the client's, or of the tools */

    /* /tokenize and its like */
    enum token_ask_kind kind;
    struct buf out;
};

static void prompt_fini(struct prompt *p)
{
    ids_fini(&p->ids);
    for (uint32_t i = 0; p->prompts && i < p->r.prompt_count; i++)
        ids_fini(&p->prompts[i].ids);
    grammar_free(p->grammar);
    turn_output_free(p->turn);
    buf_fini(&p->out);
    arena_fini(&p->arena);
}

static void prompt_free(struct prompt *p)
{
    list_remove(&p->link);
    prompt_fini(p);
    free(p);
}

static void run(void *arg)
{
    struct prompt *p = arg;
    p->rc = p->make(p);
}

static void done(void *arg)
{
    struct prompt *p = arg;
    http_exchange_unpin(p->pinned);
    if (p->x) p->made(p);
    prompt_free(p);
}

static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct prompt *p = arg;
    p->x = NULL;
    if (!text_cancel(&p->job)) return; /* the worker is at it */
    http_exchange_unpin(p->pinned);
    prompt_free(p);
}

static void to_worker(struct http_api *api, struct http_exchange *x, const struct prompt *with)
{
    if (call_refused(api, x, 1, false)) return;
    struct prompt *p = calloc(1, sizeof *p);
    if (!p) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        return;
    }
    *p = *with;
    p->pinned = x;
    p->entered = true;
    p->job = (struct text_job){ .run = run, .done = done, .arg = p, .bytes = p->body.len };
    list_push_back(&api->prompts, &p->link);
    http_exchange_pin(x);
    if (text_submit(&api->desk, &p->job) < 0) {
        http_exchange_unpin(x);
        prompt_free(p);
        metric_inc(engine_metric(api->metrics, EM_REFUSED));
        http_api_refuse(api, x, OPENAI_OVERLOADED, NULL,
                        "too many large prompts are waiting to be tokenised; try again shortly");
        return;
    }
    http_exchange_watch(x, on_abort, NULL, p);
}

static struct prompt new_prompt(struct http_api *api, struct http_exchange *x,
                                const struct prompt *with)
{
    struct prompt p = *with;
    p.api = api;
    p.x = x;
    p.body = http_exchange_request(x)->body;
    arena_init(&p.arena, HTTP_API_ARENA_BYTES_MAX);
    return p;
}

static void prompt_begin(struct http_api *api, struct http_exchange *x, const struct prompt *with)
{
    struct prompt p = new_prompt(api, x, with);
    bool small = p.body.len <= TEXT_INLINE_BYTES;
    if (small) p.rc = p.make(&p);
    if (small && p.rc != -E2BIG) {
        p.made(&p);
        prompt_fini(&p);
        return;
    }
    prompt_fini(&p); /* large, or small but more work than is done on this thread */
    p = new_prompt(api, x, with);
    to_worker(api, x, &p);
}

/* ---- chat and completions ---------------------------------------------------------------------- */

static struct encode_model encode_model_of(const struct http_api *api)
{
    return (struct encode_model){ api->info->model->vocab, api->chat_template };
}

/* Returns the member of the body that a prompt comes from. */
static const char *param_of(enum openai_surface surface)
{
    static const char *const names[] = { [OPENAI_CHAT] = "messages",
                                         [OPENAI_COMPLETION] = "prompt",
                                         [OPENAI_EMBED] = "input",
                                         [OPENAI_SCORE] = "text_2",
                                         [OPENAI_RERANK] = "documents" };
    return names[surface];
}

static int prompt_failed(const struct prompt *p, int rc, const struct err *err,
                         struct openai_error *e)
{
    const char *param = param_of(p->r.surface);
    switch (rc) {
    case -EFBIG:
        return openai_error_set(e, rc, OPENAI_CONTEXT_LENGTH, param,
                                "the prompt is longer than the context of this model, %u tokens",
                                p->api->info->context_max);
    case -E2BIG:
        return openai_error_set(e, rc, OPENAI_CONTEXT_LENGTH, param, "%s", err->text);
    case -EPROTO: /* the template's own refusal: its sentence is for the client */
    case -EINVAL:
        return openai_error_set(e, rc, OPENAI_INVALID, param, "%s", err->text);
    case -ENOMEM:
        return openai_error_set(e, rc, OPENAI_UNAVAILABLE, NULL, "no memory for the prompt");
    default:
        return openai_error_set(e, rc, OPENAI_INTERNAL, NULL, "the chat template failed: %s",
                                err->text);
    }
}

/* Returns the template's steps for this thread; 0, on a worker: up to the template's own bound. */
static uint64_t steps_max(const struct prompt *p)
{
    return p->entered ? 0 : ENCODE_INLINE_STEPS;
}

static int prompt_encode(struct prompt *p)
{
    const struct openai_request *r = &p->r;
    const struct encode_model m = encode_model_of(p->api);
    struct err err = { "" };
    /* One more than fits tells "too long" from "just fits". */
    size_t ids_max = (size_t)p->api->info->context_max + 1;
    int rc;
    if (r->surface == OPENAI_CHAT) {
        const struct encode_chat chat = { .messages = r->messages,
                                          .tools = r->tools,
                                          .kwargs = r->chat_template_kwargs,
                                          .generation_prompt = true,
                                          .now_s = clock_wall_us() / 1000000,
                                          .steps_max = steps_max(p) };
        rc = encode_chat(&m, &chat, ids_max, &p->ids, &err);
    } else if (r->prompt_ids) {
        rc = encode_ids(&m, r->prompt_ids, r->prompt_id_count, ids_max, &p->ids, &err);
    } else {
        rc = encode_text(&m, r->prompt, true, ids_max, &p->ids, &err);
    }
    return rc < 0 ? prompt_failed(p, rc, &err, &p->e) : 0;
}

#define TIMEOUT_MS_MAX 86400000 /* of x-request-timeout-ms: a day */

/* ---- generating endpoints ---------------------------------------------------------------------- */

static int no_such_model(const struct http_api *api, struct str model, struct openai_error *e)
{
    return openai_error_set(e, -ENOENT, OPENAI_MODEL_NOT_FOUND, "model",
                            "the model '" STR_FMT "' does not exist; this engine serves '" STR_FMT
                            "'",
                            STR_ARG(model), STR_ARG(api->config.model_name));
}

static bool is_base_model(const struct http_api *api, struct str model)
{
    return model.len == 0 || str_eq(model, api->config.model_name);
}

static int check_model(const struct http_api *api, struct str model, struct openai_error *e)
{
    if (is_base_model(api, model) || adapters_has(api->config.adapters, model)) return 0;
    return no_such_model(api, model, e);
}

static int read_deadline(const struct http_request *req, int64_t *ret, struct openai_error *e)
{
    struct str text = http_request_header(req, "x-request-timeout-ms");
    uint64_t ms;
    if (!text.data) return 0;
    if (str_to_u64(text, &ms) < 0 || ms == 0 || ms > TIMEOUT_MS_MAX) {
        return openai_error_set(e, -EINVAL, OPENAI_INVALID, "x-request-timeout-ms",
                                "x-request-timeout-ms must be a number from 1 to %d",
                                TIMEOUT_MS_MAX);
    }
    *ret = req->received_us + (int64_t)ms * 1000;
    return 0;
}

/* Refuses a max_tokens beyond the context, as the router does: an output cut short of it would look
 * like the model's choice. A prompt that alone fills the context is refused by call_start. */
static int check_room(const struct http_api *api, const struct openai_request *r, size_t prompt,
                      struct openai_error *e)
{
    uint32_t context = api->info->context_max;
    if (prompt >= context || r->max_tokens <= context - prompt) return 0;
    return openai_error_set(e, -EINVAL, OPENAI_CONTEXT_LENGTH, "max_tokens",
                            "the context of this model is %u tokens, but the prompt has %zu and "
                            "max_tokens asks for %u; lower it or leave it out",
                            context, prompt, r->max_tokens);
}

/* Compiles a grammar, on a worker: a small one may ask for much work. */
static int compile(struct prompt *p, const struct grammar_spec *spec, const char *param)
{
    struct err err = { "" };
    if (spec->kind == GRAMMAR_NONE) return 0;
    if (!p->entered) return -E2BIG;
    int rc = grammar_compile(spec, &p->grammar, &err);
    if (rc == 0) return 0;
    if (rc == -ENOMEM)
        return openai_error_set(&p->e, rc, OPENAI_UNAVAILABLE, NULL, "no memory for the grammar");
    return openai_error_set(&p->e, -EINVAL, rc == -ENOTSUP ? OPENAI_UNSUPPORTED : OPENAI_INVALID,
                            param, "%s", err.text);
}

static int check_task(struct prompt *p)
{
    struct err err = { "" };
    int rc = model_task_generates(p->api->info->model->task, p->api->config.model_name, &err);
    return rc < 0 ? openai_error_set(&p->e, rc, OPENAI_INVALID, "model", "%s", err.text) : 0;
}

static int check_bias(struct prompt *p)
{
    struct err err = { "" };
    int rc = generate_check_bias(p->api, p->r.logit_bias, p->r.bias_count, &err);
    return rc < 0 ? openai_error_set(&p->e, rc, OPENAI_INVALID, "logit_bias", "%s", err.text) : 0;
}

/* Keeps the text that an echo of the prompt at hand begins with. */
static int keep_echo(struct prompt *p, struct str *ret)
{
    const struct openai_request *r = &p->r;
    CLEANUP(buf_fini) struct buf text = { .max = HTTP_API_ARENA_BYTES_MAX };
    if (!r->echo) return 0;
    *ret = r->prompt;
    if (!r->prompt_ids) return 0;
    int rc =
        detok_bytes(p->api->info->model->vocab, r->prompt_ids, r->prompt_id_count, true, &text);
    if (rc == 0 && text.len > 0) *ret = arena_str(&p->arena, buf_view(&text));
    if (rc == 0 && (ret->data || text.len == 0)) return 0;
    return openai_error_set(&p->e, -ENOMEM, OPENAI_UNAVAILABLE, NULL, "no memory for the prompt");
}

/* Checks the length of a text for an encoder. */
static int check_text(struct prompt *p, size_t count)
{
    const uint32_t most = p->api->info->context_max;
    if (count > 0 && count <= most) return 0;
    return openai_error_set(&p->e, -EINVAL, count ? OPENAI_CONTEXT_LENGTH : OPENAI_INVALID,
                            param_of(p->r.surface),
                            count ? "a text, or a pair of them, has %zu tokens or more, and this "
                                    "model reads at most %u; send shorter ones"
                                  : "a text of %zu tokens; this model reads 1 to %u",
                            count, most);
}

/* Makes ids of one text, or of a pair of them, beside each other as cross-encoders read them. */
static int make_pair(struct prompt *p, uint32_t index, struct prompt_made *ret)
{
    const struct openai_request *r = &p->r;
    const struct encode_model m = encode_model_of(p->api);
    const uint32_t first = r->vectors.first_count > 1 ? index : 0;
    struct err err = { "" };
    int rc =
        encode_pair(&m, r->prompts[first].text, r->prompts[r->vectors.first_count + index].text,
                    (size_t)p->api->info->context_max + 1, &ret->ids, &ret->second_from, &err);
    return rc < 0 && rc != -EFBIG ? prompt_failed(p, rc, &err, &p->e)
                                  : check_text(p, ret->ids.count);
}

/* Makes ids of the prompt at hand. */
static int make_prompt(struct prompt *p, struct prompt_made *ret)
{
    int rc = prompt_encode(p);
    if (rc < 0) return rc;
    const size_t count = p->ids.count;
    ret->ids = p->ids;
    p->ids = (struct ids){ 0 };
    if (p->api->info->model->task != MODEL_GENERATE) return check_text(p, count);
    if (count == 0)
        return openai_error_set(&p->e, -EINVAL, OPENAI_INVALID, param_of(p->r.surface),
                                "the prompt is empty");
    if (count >= p->api->info->context_max)
        return openai_error_set(&p->e, -EINVAL, OPENAI_CONTEXT_LENGTH, param_of(p->r.surface),
                                "the prompt has %zu tokens, but the context of this model is %u "
                                "tokens and one is needed to answer",
                                count, p->api->info->context_max);
    rc = check_room(p->api, &p->r, count, &p->e);
    return rc < 0 ? rc : keep_echo(p, &ret->echo);
}

/* Plans how the output of a chat is parsed, and bound by its tools. */
static int plan_turn(struct prompt *p)
{
    const struct openai_request *r = &p->r;
    const struct ids *ids = &p->prompts[0].ids;
    const struct turn_ask ask = {
        .tools = r->tools,
        .only = r->tool_only,
        .required = r->tool_choice == OPENAI_TOOLS_REQUIRED,
        .parallel = !r->no_parallel_tool_calls,
        .bound = r->grammar.kind != GRAMMAR_NONE,
    };
    struct err err = { "" };
    int rc =
        turn_output_new(&p->api->dialogue, p->api->info->model->vocab, &ask, ids, &p->turn, &err);
    if (rc < 0)
        return openai_error_set(&p->e, rc, rc == -ENOTSUP ? OPENAI_UNSUPPORTED : OPENAI_INVALID,
                                "tools", "%s", err_text(&err, rc));
    if (p->turn) {
        rc = reasoning_limit_make(&p->api->dialogue, p->api->info->model->vocab, r->think_max,
                                  ids->data, ids->count, &p->limit, &err);
        if (rc < 0)
            return openai_error_set(&p->e, rc, rc == -ENOTSUP ? OPENAI_UNSUPPORTED : OPENAI_INVALID,
                                    "thinking_token_budget", "%s", err_text(&err, rc));
    }
    struct str tag = p->turn ? turn_output_plan(p->turn)->tag : (struct str){ 0 };
    if (tag.len == 0) return 0;
    p->spec = (struct grammar_spec){ GRAMMAR_TAGS, tag };
    return compile(p, &p->spec, "tools");
}

/* Parses the body and makes ids of the prompts. Any thread. */
static int make(struct prompt *p)
{
    const struct http_api *api = p->api;
    struct openai_request *r = &p->r;
    struct str body = p->body;
    int rc = 0;
    if (p->style == REPLY_ANTHROPIC)
        rc = anthropic_to_chat(ANTHROPIC_MESSAGES, body, &p->arena, &body, &p->e);
    if (p->style == REPLY_RESPONSES)
        rc = responses_to_chat(body, &p->arena, &body, &p->repeated, &p->e);
    if (rc == 0) rc = openai_parse(r->surface, body, &p->arena, r, &p->e);
    if (rc == 0) rc = check_model(api, r->model, &p->e);
    if (rc == 0) rc = check_task(p);
    if (rc == 0) rc = check_bias(p);
    if (rc == 0) rc = compile(p, &r->grammar, r->grammar_key);
    if (rc < 0) return rc;
    p->prompts = arena_array(&p->arena, r->prompt_count, sizeof *p->prompts);
    if (!p->prompts)
        return openai_error_set(&p->e, -ENOMEM, OPENAI_UNAVAILABLE, NULL,
                                "no memory for the prompt");
    memset(p->prompts, 0, r->prompt_count * sizeof *p->prompts);
    for (uint32_t i = 0; i < r->prompt_count && rc == 0; i++) {
        openai_prompt_select(r, i);
        rc = make_prompt(p, &p->prompts[i]);
    }
    p->spec = r->grammar;
    if (rc == 0 && r->surface == OPENAI_CHAT) rc = plan_turn(p);
    return rc;
}

static void refused(struct prompt *p)
{
    http_reply_header(p->x, "x-request-id", str_from(p->id.text));
    http_api_reply_error(p->api, p->x, &p->e);
}

/* Holds the adapter that the request names. Returns false if it was unloaded since its name was checked. */
static bool hold_adapter(struct prompt *p, struct adapter_entry **ret)
{
    const struct http_api *api = p->api;
    *ret = NULL;
    if (is_base_model(api, p->r.model)) return true;
    *ret = adapters_hold(api->config.adapters, p->r.model);
    if (!*ret) no_such_model(api, p->r.model, &p->e);
    return *ret != NULL;
}

static void made(struct prompt *p)
{
    const struct openai_request *r = &p->r;
    struct adapter_entry *adapter;
    if (p->rc < 0 || !hold_adapter(p, &adapter)) {
        refused(p);
        return;
    }
    const struct call_ask ask = {
        .adapter = adapter,
        .form = r->stream ? &call_form_stream : &call_form_whole,
        .ids = &p->prompts[0].ids,
        .prompt_tokens = (uint32_t)p->prompts[0].ids.count,
        .sampling = &r->sampling,
        .bias = r->logit_bias,
        .bias_count = r->bias_count,
        .logprobs = r->logprobs,
        .scores_prompt = r->scores_prompt,
        .echoes = r->echo,
        .prompt_top = r->prompt_top,
        /* the first that has any before it */
        .score_from = (r->echo && r->logprobs) || r->scores_prompt,
        .prompt_only = r->prompt_only,
        .echo = p->prompts[0].echo,
        .top_logprobs = r->top_logprobs,
        .max_tokens = r->max_tokens,
        .min_tokens = r->min_tokens,
        .stop = r->stop,
        .stop_count = r->stop_count,
        .ignore_eos = r->ignore_eos,
        .grammar = &p->grammar,
        .grammar_spec = &p->spec,
        .marks = p->turn && turn_output_plan(p->turn)->marks,
        .limit = p->limit,
        .turn = p->turn,
        .entered = p->entered,
        .group = r->group.len > 0 ? hash64(r->group.data, r->group.len, 0) | 1 : 0,
        .deadline_us = p->deadline_us,
        .reply = { .surface = r->surface,
                   .style = p->style,
                   .created_s = clock_wall_us() / 1000000,
                   .model = adapter ? adapter_entry_name(adapter) : p->api->config.model_name,
                   .fingerprint = str_from(p->api->info->model->numerics),
                   .repeated = p->repeated,
                   .include_usage = r->include_usage },
        .id = &p->id,
    };
    p->turn = NULL; /* taken */
    if (openai_outputs(r) == 1) {
        call_start(p->api, p->x, &ask);
    } else {
        http_reply_header(p->x, "x-request-id", str_from(p->id.text));
        call_fan_start(p->api, p->x, r, p->prompts, &ask);
    }
    adapters_drop(p->api->config.adapters, adapter); /* each call holds it, too */
}

static void generate(struct http_api *api, struct http_exchange *x, enum openai_surface surface,
                     enum reply_style style)
{
    struct prompt p = { .make = make, .made = made, .style = style, .r = { .surface = surface } };
    http_api_request_id(api, x, &p.id);
    if (read_deadline(http_exchange_request(x), &p.deadline_us, &p.e) < 0) {
        p.api = api;
        p.x = x;
        refused(&p);
        return;
    }
    prompt_begin(api, x, &p);
}

void handle_chat(struct http_api *api, struct http_exchange *x)
{
    generate(api, x, OPENAI_CHAT, REPLY_OPENAI);
}

void handle_messages(struct http_api *api, struct http_exchange *x)
{
    generate(api, x, OPENAI_CHAT, REPLY_ANTHROPIC);
}

void handle_responses(struct http_api *api, struct http_exchange *x)
{
    generate(api, x, OPENAI_CHAT, REPLY_RESPONSES);
}

void handle_completions(struct http_api *api, struct http_exchange *x)
{
    generate(api, x, OPENAI_COMPLETION, REPLY_OPENAI);
}

/* ---- texts that become vectors ---------------------------------------------------------------- */

/* Parses the body and makes ids of the texts. Any thread. */
static int make_vectors(struct prompt *p)
{
    struct openai_request *r = &p->r;
    int rc = openai_parse(r->surface, p->body, &p->arena, r, &p->e);
    if (rc == 0 && !is_base_model(p->api, r->model)) rc = no_such_model(p->api, r->model, &p->e);
    if (rc == 0) rc = embed_check(p->api, r, &p->e);
    if (rc < 0) return rc;
    p->prompts = arena_array(&p->arena, r->prompt_count, sizeof *p->prompts);
    if (!p->prompts)
        return openai_error_set(&p->e, -ENOMEM, OPENAI_UNAVAILABLE, NULL,
                                "no memory for the texts");
    memset(p->prompts, 0, r->prompt_count * sizeof *p->prompts);
    const bool pairs = embed_pairs(p->api);
    for (uint32_t i = 0; i < embed_texts(p->api, r) && rc == 0; i++) {
        openai_prompt_select(r, i);
        rc = pairs ? make_pair(p, i, &p->prompts[i]) : make_prompt(p, &p->prompts[i]);
    }
    return rc;
}

static void vectors_made(struct prompt *p)
{
    if (p->rc < 0) {
        refused(p);
        return;
    }
    http_reply_header(p->x, "x-request-id", str_from(p->id.text));
    embed_start(p->api, p->x,
                &(struct embed_ask){ .r = &p->r,
                                     .arena = &p->arena,
                                     .prompts = p->prompts,
                                     .id = &p->id,
                                     .deadline_us = p->deadline_us,
                                     .entered = p->entered });
    p->prompts = NULL; /* taken, with the arena */
}

void handle_vectors(struct http_api *api, struct http_exchange *x)
{
    const struct http_request *req = http_exchange_request(x);
    struct prompt p = { .make = make_vectors,
                        .made = vectors_made,
                        .r = { .surface = openai_vectors_surface(req->path) } };
    http_api_request_id(api, x, &p.id);
    if (read_deadline(req, &p.deadline_us, &p.e) < 0) {
        p.api = api;
        p.x = x;
        refused(&p);
        return;
    }
    prompt_begin(api, x, &p);
}

/* ---- /internal/generate with a grammar --------------------------------------------------------- */

static int make_generate(struct prompt *p)
{
    struct err err = { "" };
    int rc = generate_decode(p->body, &p->arena, &p->generate, &err);
    if (rc == 0) rc = generate_ids(p->api, &p->generate, &p->ids, &err);
    if (rc < 0) return openai_error_set(&p->e, rc, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
    return compile(p, &p->generate.grammar, "grammar");
}

static void generate_made(struct prompt *p)
{
    if (p->rc < 0)
        http_api_reply_error(p->api, p->x, &p->e);
    else
        generate_start(p->api, p->x, &p->generate, &p->ids, &p->grammar, p->entered);
}

void generate_with_grammar(struct http_api *api, struct http_exchange *x)
{
    const struct prompt with = { .make = make_generate, .made = generate_made };
    const struct prompt p = new_prompt(api, x, &with);
    to_worker(api, x, &p);
}

/* ---- /tokenize, /detokenize, /apply-template, /v1/messages/count_tokens ---- */

static int make_tokens(struct prompt *p)
{
    const struct encode_model m = encode_model_of(p->api);
    struct token_ask ask;
    struct err err = { "" };
    struct str body = p->body;
    int rc = 0;
    if (p->kind == TOKEN_ASK_COUNT)
        rc = anthropic_to_chat(ANTHROPIC_COUNT, body, &p->arena, &body, &p->e);
    if (rc < 0) return rc;
    rc = token_ask_read(p->kind, body, &ask, &err);
    ask.chat.steps_max = steps_max(p);
    if (rc == 0) rc = token_ask_answer(&ask, &m, p->api->info->context_max, &p->out, &err);
    token_ask_fini(&ask);
    if (rc == -EFBIG || rc == -E2BIG) /* the bound of a call, not of a context */
        return openai_error_set(&p->e, rc, OPENAI_TOO_LARGE, NULL, "%s", err_text(&err, rc));
    return rc < 0 ? prompt_failed(p, rc, &err, &p->e) : 0;
}

static void tokens_made(struct prompt *p)
{
    if (p->rc < 0)
        http_api_reply_error(p->api, p->x, &p->e);
    else
        http_api_reply(p->api, p->x, 200, buf_view(&p->out));
}

void handle_tokenize(struct http_api *api, struct http_exchange *x)
{
    prompt_begin(
        api, x,
        &(struct prompt){ .make = make_tokens, .made = tokens_made, .kind = TOKEN_ASK_TOKENIZE });
}

void handle_detokenize(struct http_api *api, struct http_exchange *x)
{
    prompt_begin(
        api, x,
        &(struct prompt){ .make = make_tokens, .made = tokens_made, .kind = TOKEN_ASK_DETOKENIZE });
}

void handle_count_tokens(struct http_api *api, struct http_exchange *x)
{
    prompt_begin(
        api, x,
        &(struct prompt){ .make = make_tokens, .made = tokens_made, .kind = TOKEN_ASK_COUNT });
}

void handle_apply_template(struct http_api *api, struct http_exchange *x)
{
    prompt_begin(
        api, x,
        &(struct prompt){ .make = make_tokens, .made = tokens_made, .kind = TOKEN_ASK_TEMPLATE });
}

/* ---- life ------------------------------------------------------------------------------------------ */

int prompts_init(struct http_api *api, struct err *err)
{
    const struct text_pool_config config = {
        .threads = api->config.text_threads,
        .queue_bytes = api->config.text_queue_bytes,
        .meters = { api->metrics->metrics, EM_TEXT_BYTES, EM_TEXT_REFUSED, EM_TEXT_SECONDS },
    };
    list_init(&api->prompts);
    int rc = text_pool_new(&config, &api->texts, err);
    if (rc == 0) text_desk_init(&api->desk, api->texts, api->loop);
    return rc;
}

void prompts_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->prompts, node) {
        prompt_free(CONTAINER_OF(node, struct prompt, link));
    }
    text_desk_fini(&api->desk);
    text_pool_free(api->texts);
    api->texts = NULL;
}
