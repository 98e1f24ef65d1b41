/* front.c - every path a client may ask for, in one table; who may, and in what shape.
 *
 * Authorisation is decided on the parsed path, before anything else is looked at: a path that is
 * not in the table is refused like a wrong key.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "router/byte_loop.h"
#include "router/decide.h"

#include <stdio.h>

enum access {
    ACCESS_OPEN,   /* health: anybody */
    ACCESS_CLIENT, /* an API key where keys are required, or the fleet's secret */
    ACCESS_FLEET,  /* the fleet's secret */
};

struct asked {
    struct byte_loop *b;
    struct http_exchange *x;
    const struct http_request *req;
    const struct face *face;
    const struct tenant_name *tenant; /* NULL: anonymous */
};

static const struct str json_type = { "application/json", 16 };

static void reply_problem(struct asked *a, enum openai_problem problem, const char *message)
{
    struct openai_error e = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    openai_error_set(&e, 0, problem, NULL, "%s", message);
    openai_error_render(&e, &body);
    answer_cors(a->b, a->x);
    http_reply(a->x, e.status, json_type, buf_view(&body));
}

static void on_chat(struct asked *a)
{
    generate_begin(a->b, a->x, OPENAI_CHAT, a->face, a->tenant);
}

static void on_completion(struct asked *a)
{
    generate_begin(a->b, a->x, OPENAI_COMPLETION, a->face, a->tenant);
}

static void on_models(struct asked *a)
{
    struct openai_model models[SYNC_SERVICES_MAX];
    CLEANUP(buf_fini) struct buf body = { 0 };
    for (uint32_t i = 0; i < a->face->model_count; i++) {
        models[i] = (struct openai_model){ .id = str_from(a->face->model[i].name),
                                           .created_s = clock_wall_us() / 1000000,
                                           .context_tokens = a->face->model[i].context_tokens };
    }
    openai_models_render(models, a->face->model_count, &body);
    answer_cors(a->b, a->x);
    http_reply(a->x, 200, json_type, buf_view(&body));
}

static void on_health(struct asked *a)
{
    answer_cors(a->b, a->x);
    http_reply(a->x, 200, json_type, STR("{\"status\":\"ok\"}"));
}

static void on_version(struct asked *a)
{
    http_reply(a->x, 200, json_type, STR("{\"version\":\"" MUSTER_VERSION "\"}"));
}

static void on_metrics(struct asked *a)
{
    CLEANUP(buf_fini) struct buf body = { .max = METRICS_TEXT_BYTES_MAX };
    metrics_render(a->b->metrics, &body);
    http_reply(a->x, 200, STR(METRICS_CONTENT_TYPE), buf_view(&body));
}

/* The model of {"model": ...}, or the only one; its tokenizer, or a reply that says why not. */
static const struct bundle_entry *bundle_of(struct asked *a)
{
    struct json_reader r;
    CLEANUP(buf_fini) struct buf name = { 0 };
    json_reader_init(&r, a->req->body);
    if (json_next(&r) == JSON_OBJECT) {
        while (json_next(&r) == JSON_KEY) {
            if (json_key_is(&r, "model")) {
                json_next(&r);
                json_text(&r, &name);
            } else {
                json_skip(&r);
            }
        }
    }
    if (r.token != JSON_OBJECT_END) {
        reply_problem(a, OPENAI_INVALID, "The body is not a JSON object.");
        return NULL;
    }
    const struct face_model *m = face_model_find(a->face, buf_view(&name));
    if (!m) {
        reply_problem(a, OPENAI_MODEL_NOT_FOUND, "There is no such model.");
    } else if (!m->bundle) {
        reply_problem(a, OPENAI_LOADING, "No instance of the model has started yet.");
    }
    return m ? m->bundle : NULL;
}

static void on_tokenize(struct asked *a)
{
    const struct bundle_entry *bundle = bundle_of(a);
    if (!bundle) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(ids_fini) struct ids ids = { 0 };
    bool found = false;
    struct json_reader r;
    json_reader_init(&r, a->req->body);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "prompt") || json_key_is(&r, "content")) {
            json_next(&r);
            found = json_text(&r, &text) == 0;
        } else {
            json_skip(&r);
        }
    }
    if (!found || tokenizer_encode(bundle->bundle.vocab, buf_view(&text), false, &ids, NULL) < 0) {
        reply_problem(a, OPENAI_INVALID, "Give the text as \"prompt\".");
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_u64(&w, "count", ids.count);
    json_key(&w, "tokens");
    json_array(&w);
    for (size_t i = 0; i < ids.count; i++)
        json_put_u64(&w, ids.data[i]);
    json_array_end(&w);
    json_object_end(&w);
    answer_cors(a->b, a->x);
    http_reply(a->x, 200, json_type, buf_view(&body));
}

static void on_detokenize(struct asked *a)
{
    const struct bundle_entry *bundle = bundle_of(a);
    if (!bundle) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_reader r;
    json_reader_init(&r, a->req->body);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "tokens")) {
            json_skip(&r);
            continue;
        }
        json_next(&r);
        uint64_t id;
        const struct vocab *vocab = bundle->bundle.vocab;
        while (json_next(&r) == JSON_NUMBER && json_u64(&r, &id) == 0 && id < vocab_count(vocab)) {
            buf_str(&text, vocab_bytes(vocab, (uint32_t)id));
        }
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END) {
        reply_problem(a, OPENAI_INVALID, "Give ids of the model as the list \"tokens\".");
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "prompt", buf_view(&text));
    json_object_end(&w);
    answer_cors(a->b, a->x);
    http_reply(a->x, 200, json_type, buf_view(&body));
}

/* {"policy": name}: the routing row from now on. */
static void on_route(struct asked *a)
{
    struct json_reader r;
    CLEANUP(buf_fini) struct buf name = { 0 };
    json_reader_init(&r, a->req->body);
    if (json_next(&r) == JSON_OBJECT) {
        while (json_next(&r) == JSON_KEY) {
            if (json_key_is(&r, "policy")) {
                json_next(&r);
                json_text(&r, &name);
            } else {
                json_skip(&r);
            }
        }
    }
    if (!route_find(buf_view(&name))) {
        reply_problem(a, OPENAI_INVALID, "There is no such routing policy.");
        return;
    }
    decide_route_ask(a->b->decide, route_find(buf_view(&name)));
    http_reply(a->x, 200, json_type, STR("{}"));
}

// clang-format off
static const struct {
    struct str method, path;
    enum access access;
    void (*fn)(struct asked *a);
} paths[] = {
    { { "POST", 4 }, { "/v1/chat/completions", 20 }, ACCESS_CLIENT, on_chat },
    { { "POST", 4 }, { "/v1/completions", 15 },      ACCESS_CLIENT, on_completion },
    { { "GET", 3 },  { "/v1/models", 10 },           ACCESS_CLIENT, on_models },
    { { "POST", 4 }, { "/tokenize", 9 },             ACCESS_CLIENT, on_tokenize },
    { { "POST", 4 }, { "/detokenize", 11 },          ACCESS_CLIENT, on_detokenize },
    { { "GET", 3 },  { "/health", 7 },               ACCESS_OPEN,   on_health },
    { { "GET", 3 },  { "/version", 8 },              ACCESS_CLIENT, on_version },
    { { "GET", 3 },  { "/metrics", 8 },              ACCESS_CLIENT, on_metrics },
    { { "POST", 4 }, { "/admin/route", 12 },         ACCESS_FLEET,  on_route },
};
// clang-format on

static struct str bearer_of(const struct http_request *req)
{
    struct str value = http_request_header(req, "authorization");
    struct str scheme = str_cut(&value, ' ');
    return str_eq_nocase(scheme, STR("bearer")) ? str_trim(value) : (struct str){ 0 };
}

static bool is_fleet(const struct byte_loop *b, struct str bearer)
{
    return b->secret.len > 0 && bearer.len == b->secret.len &&
           equal_constant_time(bearer.data, b->secret.data, bearer.len);
}

/* True when the caller may; else the reply was sent. */
static bool authorise(struct asked *a, enum access access)
{
    if (access == ACCESS_OPEN) return true;
    struct str bearer = bearer_of(a->req);
    if (is_fleet(a->b, bearer)) return true;
    if (access == ACCESS_FLEET) {
        reply_problem(a, OPENAI_UNAUTHENTICATED, "This path is for the fleet's own parts.");
        return false;
    }
    a->tenant = tenant_keys_find(a->face->keys, bearer);
    if (a->tenant) return true;
    bool required = a->face->keys_required || !a->b->loopback;
    if (!required) return true;
    reply_problem(a, OPENAI_UNAUTHENTICATED,
                  bearer.len ? "The API key is not known."
                             : "An API key is needed: send "
                               "'Authorization: Bearer KEY'.");
    return false;
}

static void on_preflight(struct asked *a)
{
    answer_cors(a->b, a->x);
    http_reply_header(a->x, "access-control-allow-methods", STR("GET, POST"));
    http_reply_header(a->x, "access-control-allow-headers",
                      STR("authorization, content-type, x-request-id"));
    http_reply_header(a->x, "access-control-max-age", STR("600"));
    http_reply(a->x, 204, (struct str){ 0 }, (struct str){ 0 });
}

static void dispatch(struct asked *a)
{
    if (str_eq(a->req->method, STR("OPTIONS"))) {
        on_preflight(a);
        return;
    }
    bool known = false;
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        if (!str_eq(a->req->path, paths[i].path)) continue;
        known = true;
        if (!str_eq(a->req->method, paths[i].method)) continue;
        if (authorise(a, paths[i].access)) paths[i].fn(a);
        return;
    }
    if (!authorise(a, ACCESS_CLIENT)) return;
    reply_problem(a, known ? OPENAI_METHOD_NOT_ALLOWED : OPENAI_URL_NOT_FOUND,
                  known ? "The path exists, the method does not." : "There is no such path.");
}

void front_on_request(void *ctx, struct http_exchange *x)
{
    struct byte_loop *b = ctx;
    struct face *face = face_get(b->board);
    struct asked a = { .b = b, .x = x, .req = http_exchange_request(x), .face = face };
    dispatch(&a);
    face_unref(b->board, face);
}

struct str front_render_refusal(void *ctx, const struct http_fault_info *why, struct buf *body)
{
    (void)ctx;
    struct openai_error e = { .status = why->status,
                              .type = "invalid_request_error",
                              .code = why->name };
    snprintf(e.message, sizeof e.message, "%s", why->sentence);
    openai_error_render(&e, body);
    return json_type;
}
