/* fake_server.c - a stand-in for vLLM's and SGLang's servers: it takes their command lines, keeps prompts in a
 * cache of pages, and has their API, metrics and KV events as far as an agent and a router use them.
 *
 *     fake_server --plays vllm|sglang --tokenizer FILE [--tokens N] [--token-ms M] [--pages N]
 *                 [--load-ms M] [flags of the engine it plays]
 *
 * It computes nothing: token i of an answer is H(prompt, i), as text "<hash>.", so that a test sees every token
 * that is lost, repeated or of another request. What it counts as cached is true of its own pages, which hold
 * prompts only. An unknown flag ends it, so that a wrong command line shows.
 *
 * GET /seen counts the calls (calls), the open ones (open), those that the client left (left), the tokens found
 * in its cache (cached) and its subscribers (subscribers), and shows the last call's salt and traceparent. POST /lose
 * sends the next K batches of events to nobody ({"count": K}); POST /clear empties the cache.
 */
#include "agent/tokenizer.h"
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/list.h"
#include "base/core/own.h"
#include "base/core/trace_context.h"
#include "base/io/config/opt.h"
#include "base/io/file.h"
#include "base/io/http/http_server.h"
#include "base/text/encode.h"
#include "tests/proc/rig/kv_pages.h"
#include "tests/proc/rig/kv_publisher.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define JSON_TYPE STR("application/json")
#define SALT_BYTES_MAX 128

enum plays { PLAYS_VLLM, PLAYS_SGLANG };
static const char *const plays_names[] = { "vllm", "sglang", NULL };

static const struct {
    uint32_t page_tokens;
    enum kv_event_form form;
} manner[] = { [PLAYS_VLLM] = { 16, KV_EVENT_MAPS }, [PLAYS_SGLANG] = { 1, KV_EVENT_ARRAYS } };

struct options {
    int plays;
    struct str tokenizer, model, served_name, host, device, kv_events;
    int64_t port, tokens, token_ms, pages, load_ms, context, seqs;
    bool tells_cached, metrics;
};

struct fake {
    struct loop *loop;
    struct options options;
    struct bundle bundle;
    struct kv_pages pages;
    struct kv_publisher *publisher; /* NULL: none */
    struct loop_timer loaded;
    bool ready;
    struct list calls; /* open, in order of arrival; the first options.seqs of them run */
    unsigned long long call_count, left, finished, prompt_tokens, cached, generated;
    int64_t lose;
    char salt[SALT_BYTES_MAX], traceparent[TRACE_PARENT_BYTES + 1];
};

struct call {
    struct fake *fake;
    struct list link;
    struct http_exchange *x;
    struct loop_timer timer;
    struct buf text; /* of a whole reply */
    uint64_t prompt_hash, wanted, sent;
    uint32_t prompt_tokens, cached;
    bool chat, stream, wants_usage, runs, began, scores;
};

#define SCORES "[null,{\"7\":{\"logprob\":-1.5,\"rank\":2,\"decoded_token\":\"a\"}}]"

static void run_next(struct fake *f);

static void refuse(struct http_exchange *x, int status, const char *why)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"error\":{\"message\":\"%s\",\"type\":\"BadRequestError\",\"code\":%d}}",
               why, status);
    http_reply(x, status, JSON_TYPE, buf_view(&body));
}

/* ---- answers ---- */

static void call_free(struct call *c)
{
    struct fake *f = c->fake;
    loop_timer_clear(f->loop, &c->timer);
    list_remove(&c->link);
    buf_fini(&c->text);
    free(c);
    run_next(f);
}

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct call *)arg)->fake->left++;
    call_free(arg);
}

static void put_usage(const struct call *c, struct json_writer *w)
{
    json_key(w, "usage");
    json_object(w);
    json_kv_u64(w, "prompt_tokens", c->prompt_tokens);
    json_kv_u64(w, "total_tokens", c->prompt_tokens + c->sent);
    json_kv_u64(w, "completion_tokens", c->sent);
    if (c->fake->options.tells_cached) {
        json_key(w, "prompt_tokens_details");
        json_object(w);
        json_kv_u64(w, "cached_tokens", c->cached);
        json_object_end(w);
    }
    json_object_end(w);
}

/* Writes one choice: a piece of a stream, or a whole answer. */
static void put_choice(const struct call *c, struct json_writer *w, struct str text,
                       const char *finish)
{
    json_array(w);
    json_object(w);
    json_kv_u64(w, "index", 0);
    if (c->chat) {
        json_key(w, c->stream ? "delta" : "message");
        json_object(w);
        json_kv_text(w, "role", "assistant");
        json_kv_str(w, "content", text);
        json_object_end(w);
    } else {
        json_kv_str(w, "text", text);
    }
    if (c->scores && !c->chat) {
        json_key(w, "prompt_logprobs");
        json_put_raw(w, STR(SCORES));
    }
    json_key(w, "finish_reason");
    if (finish)
        json_put_text(w, finish);
    else
        json_put_raw(w, STR("null"));
    json_object_end(w);
    json_array_end(w);
}

static void begin_reply(const struct call *c, struct json_writer *w, struct buf *out)
{
    json_writer_init(w, out);
    json_object(w);
    json_kv_text(w, "id", "x-1");
    json_kv_text(w, "object",
                 c->chat ? c->stream ? "chat.completion.chunk" : "chat.completion"
                         : "text_completion");
    json_kv_u64(w, "created", 1);
    json_kv_str(w, "model", c->fake->options.served_name);
    json_key(w, "choices");
}

static void write_chunk(struct call *c, struct str text, const char *finish, bool usage)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    buf_text(&out, "data: ");
    begin_reply(c, &w, &out);
    if (usage) {
        json_array(&w);
        json_array_end(&w);
        put_usage(c, &w);
    } else {
        put_choice(c, &w, text, finish);
    }
    json_object_end(&w);
    buf_text(&out, "\n\n");
    http_stream_write(c->x, out.data, out.len);
}

static void finish(struct call *c)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct fake *f = c->fake;
    bool whole = c->sent == (uint64_t)f->options.tokens;
    const char *why = whole ? "stop" : "length";
    f->finished++;
    f->generated += c->sent;
    if (c->stream) {
        write_chunk(c, (struct str){ 0 }, why, false);
        if (c->wants_usage) write_chunk(c, (struct str){ 0 }, NULL, true);
        http_stream_write(c->x, "data: [DONE]\n\n", 14);
        http_stream_end(c->x);
    } else {
        struct json_writer w;
        begin_reply(c, &w, &out);
        put_choice(c, &w, buf_view(&c->text), why);
        put_usage(c, &w);
        if (c->scores && c->chat) {
            json_key(&w, "prompt_logprobs");
            json_put_raw(&w, STR(SCORES));
        }
        json_object_end(&w);
        http_reply(c->x, 200, JSON_TYPE, buf_view(&out));
    }
    call_free(c);
}

static void on_token(void *arg)
{
    struct call *c = arg;
    char text[32];
    if (c->sent == c->wanted) {
        finish(c);
        return;
    }
    uint64_t h = hash64(&c->sent, sizeof c->sent, c->prompt_hash);
    snprintf(text, sizeof text, "%08llx.", (unsigned long long)(h & 0xffffffff));
    c->sent++;
    if (c->stream)
        write_chunk(c, str_from(text), NULL, false);
    else
        buf_text(&c->text, text);
    loop_timer_set(c->fake->loop, &c->timer,
                   loop_now_us(c->fake->loop) + c->fake->options.token_ms * 1000);
}

/* Begins those that there is room for. */
static void run_next(struct fake *f)
{
    int64_t place = 0;
    LIST_EACH_SAFE (&f->calls, at) {
        struct call *c = CONTAINER_OF(at, struct call, link);
        if (place++ == f->options.seqs) return;
        if (c->runs) continue;
        c->runs = true;
        if (c->stream) {
            http_stream_begin(c->x, 200, STR("text/event-stream"));
            if (c->chat) write_chunk(c, STR(""), NULL, false); /* names the role */
        }
        loop_timer_set(f->loop, &c->timer, loop_now_us(f->loop) + f->options.token_ms * 1000);
    }
}

/* ---- requests ---- */

/* Reads the prompt's ids with the model's tokenizer. Another member than those of /tokenize is skipped. */
static int read_prompt(const struct fake *f, struct str body, struct ids *ids, struct err *err)
{
    CLEANUP(token_ask_fini) struct token_ask ask = { 0 };
    const struct encode_model m = { f->bundle.vocab, f->bundle.chat_template };
    int rc = token_ask_read(TOKEN_ASK_TOKENIZE, body, &ask, err);
    if (rc < 0) return rc;
    return ask.has_prompt
               ? encode_text(&m, buf_view(&ask.prompt), true, TOKEN_ASK_IDS_MAX, ids, err)
               : encode_chat(&m, &ask.chat, TOKEN_ASK_IDS_MAX, ids, err);
}

/* Takes the prompt into the cache and tells the subscribers. */
static uint32_t take_pages(struct fake *f, const struct ids *ids, struct str salt)
{
    CLEANUP(buf_fini) struct buf batch = { 0 };
    uint32_t page = f->pages.page_tokens;
    uint32_t hit = kv_pages_take(&f->pages, ids->data, ids->count, salt, &batch);
    if (batch.len > 0 && f->publisher) {
        kv_publisher_send(f->publisher, buf_view(&batch), f->lose > 0);
        f->lose -= f->lose > 0;
    }
    /* The last token is always computed, and with it its page. */
    return hit == ids->count && hit > 0 ? hit - page : hit;
}

static void on_completion(struct fake *f, struct http_exchange *x, bool chat)
{
    struct str body = http_exchange_request(x)->body;
    CLEANUP(ids_fini) struct ids ids = { 0 };
    CLEANUP(buf_fini) struct buf model = { 0 }, salt = { 0 };
    struct err err = { "" };
    uint64_t most = f->options.context;
    bool stream = false, usage = false;
    json_path_text(body, "model", &model);
    json_path_text(body, "cache_salt", &salt);
    uint64_t seed = 0, scores = 0, outputs = 1;
    json_path_u64(body, "n", &outputs);
    json_path_u64(body, "seed", &seed);
    bool scored = json_path_u64(body, "prompt_logprobs", &scores) == 0;
    json_path_bool(body, "stream", &stream);
    json_path_bool(body, "stream_options.include_usage", &usage);
    if (json_path_u64(body, "max_completion_tokens", &most) < 0)
        json_path_u64(body, "max_tokens", &most);
    f->call_count++;
    snprintf(f->traceparent, sizeof f->traceparent, STR_FMT,
             STR_ARG(http_request_header(http_exchange_request(x), "traceparent")));
    snprintf(f->salt, sizeof f->salt, STR_FMT, STR_ARG(buf_view(&salt)));
    if (!str_eq(buf_view(&model), f->options.served_name)) {
        refuse(x, 404, "The model does not exist.");
        return;
    }
    if (read_prompt(f, body, &ids, &err) < 0) {
        refuse(x, 400, "no prompt that can be read");
        return;
    }
    if (outputs > 1) {
        refuse(x, 400, "one output a request");
        return;
    }
    if (ids.count >= (size_t)f->options.context) {
        refuse(x, 400, "maximum context length exceeded");
        return;
    }
    struct call *c = calloc(1, sizeof *c);
    must(c);
    *c = (struct call){ .fake = f, .x = x, .chat = chat, .stream = stream, .wants_usage = usage };
    c->timer = (struct loop_timer){ .fn = on_token, .arg = c };
    c->prompt_hash = hash64(ids.data, ids.count * sizeof *ids.data, seed);
    c->scores = scored;
    c->prompt_tokens = (uint32_t)ids.count;
    c->cached = take_pages(f, &ids, buf_view(&salt));
    c->wanted = (uint64_t)f->options.tokens < most ? (uint64_t)f->options.tokens : most;
    f->prompt_tokens += c->prompt_tokens;
    f->cached += c->cached;
    list_push_back(&f->calls, &c->link);
    http_exchange_watch(x, on_left, NULL, c);
    run_next(f);
}

static uint32_t count_calls(struct fake *f, bool running)
{
    uint32_t count = 0;
    LIST_EACH (&f->calls, at)
        count += CONTAINER_OF(at, struct call, link)->runs == running;
    return count;
}

static double kv_share(const struct fake *f)
{
    return (double)f->pages.count / f->pages.max;
}

static void put_vllm_meters(struct fake *f, struct buf *out)
{
    uint32_t running = count_calls(f, true);
    buf_printf(out, "vllm:num_requests_running{engine=\"0\"} %u\n", running);
    buf_printf(out, "vllm:num_requests_waiting{engine=\"0\"} %u\n", count_calls(f, false));
    buf_printf(out, "vllm:kv_cache_usage_perc{engine=\"0\"} %g\n", running ? kv_share(f) : 0);
    buf_printf(out, "vllm:prompt_tokens_total{engine=\"0\"} %llu\n", f->prompt_tokens);
    buf_printf(out, "vllm:prefix_cache_hits_total{engine=\"0\"} %llu\n", f->cached);
    buf_printf(out, "vllm:generation_tokens_total{engine=\"0\"} %llu\n", f->generated);
    buf_printf(out, "vllm:request_success_total{finished_reason=\"stop\"} %llu\n", f->finished);
    buf_printf(out, "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%u\"} 1.0\n",
               f->pages.max);
}

static void put_sglang_meters(struct fake *f, struct buf *out)
{
    uint32_t running = count_calls(f, true);
    buf_printf(out, "sglang:num_running_reqs{tp_rank=\"0\"} %u\n", running);
    buf_printf(out, "sglang:num_queue_reqs{tp_rank=\"0\"} %u\n", count_calls(f, false));
    buf_printf(out, "sglang:token_usage{tp_rank=\"0\"} %g\n", running ? kv_share(f) : 0);
    buf_printf(out, "sglang:prompt_tokens_total %llu\n", f->prompt_tokens);
    buf_printf(out, "sglang:cached_tokens_total %llu\n", f->cached);
    buf_printf(out, "sglang:generation_tokens_total %llu\n", f->generated);
    buf_printf(out, "sglang:num_requests_total %llu\n", f->finished);
    buf_printf(out, "sglang:max_total_num_tokens{tp_rank=\"0\"} %u\n", f->pages.max);
}

static void on_metrics(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    if (!f->options.metrics) {
        refuse(x, 404, "Not Found");
        return;
    }
    if (f->options.plays == PLAYS_VLLM)
        put_vllm_meters(f, &out);
    else
        put_sglang_meters(f, &out);
    http_reply(x, 200, STR("text/plain; version=0.0.4"), buf_view(&out));
}

static void on_models(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    buf_printf(&out,
               "{\"object\":\"list\",\"data\":[{\"id\":\"" STR_FMT "\",\"object\":\"model\","
               "\"max_model_len\":%lld}]}",
               STR_ARG(f->options.served_name), (long long)f->options.context);
    http_reply(x, 200, JSON_TYPE, buf_view(&out));
}

static void on_server_info(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    buf_printf(&out, "{\"page_size\":1,\"max_running_requests\":%lld,\"internal_states\":[{}]}",
               (long long)f->options.seqs);
    http_reply(x, 200, JSON_TYPE, buf_view(&out));
}

static void on_seen(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_u64(&w, "calls", f->call_count);
    json_kv_u64(&w, "open", count_calls(f, true) + count_calls(f, false));
    json_kv_u64(&w, "left", f->left);
    json_kv_u64(&w, "cached", f->cached);
    json_kv_u64(&w, "subscribers", f->publisher ? kv_publisher_subscribers(f->publisher) : 0);
    json_kv_text(&w, "salt", f->salt);
    json_kv_text(&w, "traceparent", f->traceparent);
    json_object_end(&w);
    http_reply(x, 200, JSON_TYPE, buf_view(&out));
}

static void on_order(struct fake *f, struct http_exchange *x, bool clear)
{
    uint64_t count = 1;
    CLEANUP(buf_fini) struct buf batch = { 0 };
    json_path_u64(http_exchange_request(x)->body, "count", &count);
    if (clear)
        kv_pages_clear(&f->pages, &batch);
    else
        f->lose = (int64_t)count;
    if (clear && f->publisher) kv_publisher_send(f->publisher, buf_view(&batch), false);
    http_reply(x, 200, JSON_TYPE, STR("{}"));
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    struct str path = http_exchange_request(x)->path;
    if (str_eq(path, STR("/health"))) {
        http_reply(x, f->ready ? 200 : 503, STR("text/plain"), (struct str){ 0 });
    } else if (!f->ready) {
        refuse(x, 503, "loading");
    } else if (str_eq(path, STR("/v1/models"))) {
        on_models(f, x);
    } else if (str_eq(path, STR("/metrics"))) {
        on_metrics(f, x);
    } else if (f->options.plays == PLAYS_SGLANG && str_eq(path, STR("/get_server_info"))) {
        on_server_info(f, x);
    } else if (str_eq(path, STR("/v1/chat/completions"))) {
        on_completion(f, x, true);
    } else if (str_eq(path, STR("/v1/completions"))) {
        on_completion(f, x, false);
    } else if (str_eq(path, STR("/seen"))) {
        on_seen(f, x);
    } else if (str_eq(path, STR("/lose")) || str_eq(path, STR("/clear"))) {
        on_order(f, x, str_eq(path, STR("/clear")));
    } else {
        refuse(x, 404, "Not Found");
    }
}

/* ---- start ---- */

#define AT(member) .offset = offsetof(struct options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "plays", .type = CONFIG_ENUM, .default_text = "vllm", .names = plays_names, AT(plays), .about = "Which server it plays." },
    { .name = "tokenizer", .type = CONFIG_TEXT, .required = true, AT(tokenizer), .about = "File of `muster tokenizer`." },
    { .name = "tokens", .type = CONFIG_INT, .default_text = "8", .min = 0, .max = 1e6, AT(tokens), .about = "Tokens of every answer." },
    { .name = "token_ms", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e6, AT(token_ms), .about = "Milliseconds of a token." },
    { .name = "pages", .type = CONFIG_INT, .default_text = "4096", .min = 1, .max = KV_PAGES_MAX, AT(pages), .about = "Of its cache." },
    { .name = "load_ms", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6, AT(load_ms), .about = "Milliseconds until it is ready." },
    { .name = "port", .type = CONFIG_INT, .required = true, .min = 1, .max = 65535, AT(port), .about = "Its port." },
    { .name = "host", .type = CONFIG_TEXT, .default_text = "127.0.0.1", AT(host), .about = "Its address." },
    { .name = "served_model_name", .type = CONFIG_TEXT, .default_text = "m", AT(served_name), .about = "What it is called." },
    { .name = "kv_events_config", .type = CONFIG_TEXT, AT(kv_events), .about = "JSON: endpoint and replay_endpoint, ipc." },
    { .name = "device", .type = CONFIG_TEXT, AT(device), .about = "Nothing." },
    { .name = "model", .type = CONFIG_TEXT, AT(model), .about = "Of vLLM: nothing." },
    { .name = "model_path", .type = CONFIG_TEXT, AT(model), .about = "Of SGLang: nothing." },
    { .name = "max_model_len", .type = CONFIG_INT, .default_text = "4096", .min = 1, .max = 1e7, AT(context), .about = "Of vLLM: the context." },
    { .name = "context_length", .type = CONFIG_INT, .default_text = "4096", .min = 1, .max = 1e7, AT(context), .about = "Of SGLang: the same." },
    { .name = "max_num_seqs", .type = CONFIG_INT, .default_text = "8", .min = 1, .max = 1e6, AT(seqs), .about = "Of vLLM: requests that run." },
    { .name = "max_running_requests", .type = CONFIG_INT, .default_text = "8", .min = 1, .max = 1e6, AT(seqs), .about = "Of SGLang: the same." },
    { .name = "enable_prompt_tokens_details", .type = CONFIG_BOOL, .default_text = "false", AT(tells_cached), .about = "Of vLLM: name cached tokens." },
    { .name = "enable_cache_report", .type = CONFIG_BOOL, .default_text = "false", AT(tells_cached), .about = "Of SGLang: the same." },
    { .name = "enable_metrics", .type = CONFIG_BOOL, .default_text = "false", AT(metrics), .about = "Of SGLang: have metrics." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct options, rows);
static const struct opt_command usage = { .name = "fake_server",
                                          .about = "A stand-in for vLLM and SGLang.",
                                          .options = &record };

static int load_tokenizer(struct fake *f, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(tokenizer_source_fini) struct tokenizer_source t = { 0 };
    int rc = file_read(f->options.tokenizer.data, BUNDLE_BYTES_MAX, &text, err);
    if (rc == 0) rc = tokenizer_source_parse(buf_view(&text), &t, err);
    return rc < 0 ? rc : bundle_decode(buf_view(&t.bundle), NULL, &f->bundle, err);
}

/* Opens the publisher if the engine's own flag asks for one. vLLM publishes only if a member says so. */
static int open_publisher(struct fake *f, struct err *err)
{
    CLEANUP(buf_fini) struct buf endpoint = { 0 }, replay = { 0 };
    struct str config = f->options.kv_events, at;
    bool enabled = f->options.plays == PLAYS_SGLANG;
    if (config.len == 0) return 0;
    json_path_bool(config, "enable_kv_cache_events", &enabled);
    if (!enabled) return 0;
    json_path_text(config, "replay_endpoint", &replay);
    if (json_path_text(config, "endpoint", &endpoint) < 0 ||
        !str_starts(buf_view(&endpoint), STR("ipc://")))
        return err_set(err, -EINVAL, "--kv-events-config: want an endpoint of ipc");
    at = buf_view(&replay);
    if (at.len > 6) at = str_of(at.data + 6, at.len - 6);
    return kv_publisher_new(f->loop, str_of(endpoint.data + 6, endpoint.len - 6), at, &f->publisher,
                            err);
}

static void on_loaded(void *arg)
{
    ((struct fake *)arg)->ready = true;
}

int main(int argc, char **argv)
{
    struct fake f = { 0 };
    struct opt_parsed parsed;
    struct err err = { "" };
    struct http_server *server = NULL;
    signal(SIGPIPE, SIG_IGN);
    list_init(&f.calls);
    if (opt_parse(&usage, argc - 1, argv + 1, &f.options, &parsed, &err) < 0)
        return opt_fail(&usage, &err);
    f.options.metrics |= f.options.plays == PLAYS_VLLM;
    kv_pages_init(&f.pages, (uint32_t)f.options.pages, manner[f.options.plays].page_tokens,
                  manner[f.options.plays].form);
    int rc = load_tokenizer(&f, &err);
    if (rc == 0) rc = loop_new(&f.loop, &err);
    if (rc == 0) rc = open_publisher(&f, &err);
    const struct http_server_config config = {
        .host = f.options.host.data,
        .port = (uint16_t)f.options.port,
        .on_request = on_request,
        .ctx = &f,
    };
    if (rc == 0) rc = http_server_new(f.loop, &config, &server, &err);
    f.loaded = (struct loop_timer){ .fn = on_loaded, .arg = &f };
    if (rc == 0)
        rc = loop_timer_set(f.loop, &f.loaded, loop_now_us(f.loop) + f.options.load_ms * 1000);
    if (rc == 0) rc = loop_run(f.loop);
    if (rc < 0) fprintf(stderr, "fake_server: %s\n", err_text(&err, rc));
    http_server_free(server);
    kv_publisher_free(f.publisher);
    loop_free(f.loop);
    bundle_fini(&f.bundle);
    opt_parsed_fini(&parsed);
    return rc < 0;
}
