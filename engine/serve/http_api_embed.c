/* http_api_embed.c - has the vectors of a request's texts computed, a few at a time, and replies with them. */
#include "engine/serve/http_api_embed.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/wire/vectors_reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct embed_text {
    struct embed *embed;
    struct job *job; /* NULL: not at the device */
    struct embedding embedding;
    float *vector; /* of scores and rankings, once it is known */
};

struct embed {
    struct list link;
    struct http_api *api;
    struct http_exchange *x; /* NULL: answered, or the client has left */
    struct request_id id;
    struct openai_request r;
    struct arena arena;
    struct prompt_made *prompts;
    int64_t arrival_us, deadline_us;
    uint32_t count; /* texts, or pairs of them */
    bool pairs;
    uint32_t slots;         /* calls that it counts as */
    uint32_t next, at_work; /* texts: the first that was not submitted, those at the device */
    struct usage usage;
    struct buf *rendered; /* of embeddings, one a text */
    struct embed_text text[];
};

static uint32_t kept_dimensions(const struct embed *e)
{
    const uint32_t all = e->api->info->model->n_embd;
    return e->r.vectors.dimensions > 0 ? e->r.vectors.dimensions : all;
}

bool embed_pairs(const struct http_api *api)
{
    return api->info->model->task == MODEL_SCORE;
}

uint32_t embed_texts(const struct http_api *api, const struct openai_request *r)
{
    return embed_pairs(api) ? r->prompt_count - r->vectors.first_count : r->prompt_count;
}

int embed_check(const struct http_api *api, const struct openai_request *r, struct openai_error *e)
{
    const uint32_t all = api->info->model->n_embd;
    const uint32_t kept = r->vectors.dimensions > 0 ? r->vectors.dimensions : all;
    if (embed_pairs(api) && r->surface == OPENAI_EMBED)
        return openai_error_set(e, -EINVAL, OPENAI_INVALID, "model",
                                "'" STR_FMT "' is a cross-encoder: it scores pairs of texts "
                                "(/v1/score, /v1/rerank) and has no vectors of single ones",
                                STR_ARG(api->config.model_name));
    if (kept > all)
        return openai_error_set(e, -EINVAL, OPENAI_INVALID, "dimensions",
                                "dimensions is %u, but vectors of this model have %u", kept, all);
    const size_t bytes = r->prompt_count * vector_bytes(kept, r->vectors.base64);
    if (r->surface != OPENAI_EMBED || bytes <= EMBED_REPLY_BYTES_MAX) return 0;
    return openai_error_set(e, -EFBIG, OPENAI_TOO_LARGE, "input",
                            "%u vectors of %u numbers may take %zu bytes, and a reply has at most "
                            "%zu; send fewer texts, or ask for base64 or fewer dimensions",
                            r->prompt_count, kept, bytes, EMBED_REPLY_BYTES_MAX);
}

/* ---- ends ---- */

static void text_drop(struct embed_text *t)
{
    job_free(t->job);
    free(t->embedding.sum);
    t->job = NULL;
    t->embedding.sum = NULL;
}

static void embed_free(struct embed *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        text_drop(&e->text[i]);
        free(e->text[i].vector);
        ids_fini(&e->prompts[i].ids);
        if (e->rendered) buf_fini(&e->rendered[i]);
    }
    list_remove(&e->link);
    e->api->call_count -= e->slots;
    free(e->rendered);
    arena_fini(&e->arena);
    free(e);
}

/* Lets go of the client and of the texts that are at the device; they come back by mail. May free it. */
static void leave(struct embed *e)
{
    e->x = NULL;
    e->next = e->count;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->text[i].job) device_abort(e->api->device, e->text[i].job);
    if (e->at_work == 0) embed_free(e);
}

static void on_abort(void *arg, enum http_abort why)
{
    struct embed *e = arg;
    log_event(LOG_DEBUG, "client_left", "id=%s slow=%d", e->id.text, why == HTTP_ABORT_SLOW_READER);
    leave(e);
}

static void fail(struct embed *e, enum openai_problem problem, const char *sentence)
{
    http_api_refuse(e->api, e->x, problem, NULL, "%s", sentence);
    e->x = NULL;
}

static void fail_as(struct embed *e, const struct job_mail *mail)
{
    if (mail->refused == -EAGAIN)
        fail(e, OPENAI_OVERLOADED, mail->error);
    else if (mail->refused == -ENOMEM)
        fail(e, OPENAI_UNAVAILABLE, mail->error);
    else if (mail->refused)
        fail(e, OPENAI_INTERNAL, mail->error);
    else if (mail->end == SESSION_END_DEADLINE)
        fail(e, OPENAI_DEADLINE, "the request was not done within its time");
    else if (mail->end == SESSION_END_ABORT)
        fail(e, OPENAI_UNAVAILABLE, "the engine is shutting down");
    else
        fail(e, OPENAI_INTERNAL, mail->error);
}

void embeds_let_go(struct http_api *api)
{
    char sentence[ERR_TEXT_MAX];
    snprintf(sentence, sizeof sentence, STALLED_TEXT, (double)api->stalled_us * 1e-6);
    LIST_EACH_SAFE (&api->embeds, node) {
        struct embed *e = CONTAINER_OF(node, struct embed, link);
        if (!e->x) continue;
        fail(e, OPENAI_UNAVAILABLE, sentence);
        leave(e);
    }
}

void embeds_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->embeds, node) {
        embed_free(CONTAINER_OF(node, struct embed, link));
    }
}

/* ---- the reply ---- */

/* Makes a score of the head's number, as sentence-transformers' CrossEncoder does. */
static double pair_score(const struct embed *e, const struct embedding *pair)
{
    const double x = (double)pair->score;
    return e->api->info->model->score_is_plain ? x : 1 / (1 + exp(-x));
}

static double score_of(const struct embed *e, uint32_t index)
{
    const uint32_t first = e->r.vectors.first_count;
    if (e->pairs) return pair_score(e, &e->text[index].embedding);
    const float *a = e->text[first > 1 ? index : 0].vector, *b = e->text[first + index].vector;
    return vector_cosine(a, b, kept_dimensions(e));
}

static int render_scores(struct embed *e, const struct openai_reply *reply, struct buf *out)
{
    const uint32_t count = e->r.prompt_count - e->r.vectors.first_count;
    double *score = arena_array(&e->arena, count, sizeof *score);
    struct document_rank *ranked = arena_array(&e->arena, count, sizeof *ranked);
    if (!score || !ranked) return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        score[i] = score_of(e, i);
        ranked[i] = (struct document_rank){ score[i], i };
    }
    if (e->r.surface == OPENAI_SCORE) return scores_reply(reply, score, count, &e->usage, out);
    return ranking_reply(reply, &e->r, ranked, count, &e->usage, out);
}

static void reply(struct embed *e)
{
    struct http_api *api = e->api;
    const struct openai_reply reply = { .id = str_from(e->id.text),
                                        .created_s = clock_wall_us() / 1000000,
                                        .model = api->config.model_name };
    buf_clear(&api->out);
    int rc = e->r.surface == OPENAI_EMBED
                 ? embeddings_reply(&reply, e->rendered, e->count, &e->usage, &api->out)
                 : render_scores(e, &reply, &api->out);
    if (rc < 0) {
        fail(e, OPENAI_UNAVAILABLE, "no memory for the answer");
        return;
    }
    http_api_reply(api, e->x, 200, buf_view(&api->out));
    e->x = NULL;
}

/* Makes the vector of a text out of the sum of its states. */
static int make_vector(struct embed *e, uint32_t index)
{
    struct embed_text *t = &e->text[index];
    const uint32_t kept = kept_dimensions(e);
    if (e->pairs) return isfinite(t->embedding.score) ? 0 : -EDOM;
    t->vector = malloc(kept * sizeof *t->vector);
    if (!t->vector) return -ENOMEM;
    int rc = vector_normalise(t->embedding.sum, kept, t->vector);
    if (rc < 0 || e->r.surface != OPENAI_EMBED) return rc;
    /* Rendered now and not at the end, so that the loop never renders many at once. */
    buf_init(&e->rendered[index], EMBED_REPLY_BYTES_MAX);
    vector_render(t->vector, kept, e->r.vectors.base64, &e->rendered[index]);
    free(t->vector);
    t->vector = NULL;
    return e->rendered[index].rc;
}

/* ---- texts ---- */

static int submit_next(struct embed *e)
{
    struct http_api *api = e->api;
    const uint32_t index = e->next;
    struct embed_text *t = &e->text[index];
    struct ids *ids = &e->prompts[index].ids;
    t->embed = e;
    t->embedding = (struct embedding){ .pooling = api->config.pooling,
                                       .second_from = e->prompts[index].second_from };
    if (!e->pairs) t->embedding.sum = calloc(api->info->model->n_embd, sizeof *t->embedding.sum);
    t->job = job_new();
    if (!t->job || (!t->embedding.sum && !e->pairs)) {
        text_drop(t);
        return -ENOMEM;
    }
    struct job_ask *a = &t->job->ask;
    struct str tenant = e->r.vectors.cache_salt;
    a->number = ++api->numbered;
    a->id_count = (uint32_t)ids->count;
    a->ids = TAKE(ids->data);
    *ids = (struct ids){ 0 };
    a->spec = (struct output_spec){ .embedding = &t->embedding, .prompt_tokens = a->id_count };
    a->output_max = 1;
    a->salt = http_api_salt(api, NULL, tenant);
    if (api->config.pooling == POOLING_MEAN)
        a->salt.lo ^= hash64(&a->number, sizeof a->number, api->boot);
    a->tenant = tenant.len > 0 ? hash64(tenant.data, tenant.len, 0) : 0;
    a->arrival_us = e->arrival_us;
    a->deadline_us = e->deadline_us;
    a->predicted_p50 = a->predicted_p90 = a->predicted_mean = 1;
    a->owner = t;
    e->usage.prompt_tokens += a->id_count;
    e->next++;
    e->at_work++;
    device_submit(api->device, t->job);
    return 0;
}

/* Keeps what a text has brought, and goes on with the next one. May free the request. */
static void text_ended(struct embed_text *t, const struct job_mail *mail)
{
    struct embed *e = t->embed;
    e->at_work--;
    if (e->x && (mail->refused || mail->end != SESSION_END_STOP)) fail_as(e, mail);
    if (e->x) {
        e->usage.cached_tokens += mail->cached_tokens;
        metric_inc(engine_metric(e->api->metrics, EM_EMBEDDED));
        int rc = make_vector(e, (uint32_t)(t - e->text));
        if (rc == -EDOM)
            fail(e, OPENAI_INTERNAL, "the model gave no usable state for a text");
        else if (rc < 0 || (e->next < e->count && submit_next(e) < 0))
            fail(e, OPENAI_UNAVAILABLE, "no memory for the answer");
    }
    text_drop(t);
    if (e->x && e->at_work == 0) reply(e);
    if (!e->x) leave(e);
}

void embed_mail(struct job *job)
{
    struct embed_text *t = job->ask.owner;
    struct http_api *api = t->embed->api;
    struct job_mail *mail = &api->mail;
    if (device_take_mail(api->device, job, mail) && mail->ended) text_ended(t, mail);
}

void embed_start(struct http_api *api, struct http_exchange *x, const struct embed_ask *ask)
{
    const uint32_t count = embed_texts(api, ask->r);
    const uint32_t slots = min_u32(count, min_u32(EMBED_AT_ONCE, api->config.waiting_max));
    struct embed *e = NULL;
    if (!call_refused(api, x, slots, ask->entered)) {
        e = calloc(1, sizeof *e + count * sizeof e->text[0]);
        if (e) e->rendered = calloc(count, sizeof *e->rendered);
        if (!e || !e->rendered) {
            free(e);
            e = NULL;
            http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        }
    }
    if (!e) {
        for (uint32_t i = 0; i < count; i++)
            ids_fini(&ask->prompts[i].ids);
        return; /* the arena is still the caller's */
    }
    const struct http_request *req = http_exchange_request(x);
    e->api = api;
    e->x = x;
    e->id = *ask->id;
    e->r = *ask->r;
    e->arena = *ask->arena;
    *ask->arena = (struct arena){ 0 };
    e->prompts = ask->prompts;
    e->count = count;
    e->pairs = embed_pairs(api);
    e->slots = slots;
    e->arrival_us = req->received_us;
    e->deadline_us = req->received_us + api->config.request_us_max;
    if (ask->deadline_us) e->deadline_us = min_i64(e->deadline_us, ask->deadline_us);
    api->call_count += slots;
    list_push_back(&api->embeds, &e->link);
    http_exchange_watch(x, on_abort, NULL, e);
    int rc = 0;
    while (rc == 0 && e->next < count && e->at_work < slots)
        rc = submit_next(e);
    if (rc == 0) return;
    fail(e, OPENAI_UNAVAILABLE, "no memory for the request");
    leave(e);
}
