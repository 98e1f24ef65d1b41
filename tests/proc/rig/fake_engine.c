/* fake_engine.c - plays an engine: it speaks our internal protocol and fails on command.
 *
 *     fake_engine --port P [--tokens N] [--token-ms M] [--fail MODE] [--fail-count K]
 *                 [--context N] [--running-max N] [--name NAME] [--crowded] [--pulls]
 *                 [--stamped] [--untold] [--vocab FILE.gguf] [--chat-template TEXT]
 *                 [--secret-file FILE]
 *
 * Token i of a prompt is H(prompt, i), as text "<hash>.", so that a test sees every token that is
 * lost, repeated or of another request; with --stamped the text is the microsecond of CLOCK_MONOTONIC
 * at which the token was written. The engine continues an output that another one began: the ids behind
 * the prompt are its first tokens, and must be those that this engine would have made.
 * `--fail` selects the failure of the first K generate calls:
 *
 *     busy      answered 503                      die_early   the process exits before the head
 *     error     answered 500                      die_late    it exits after three tokens
 *     garbage   a malformed frame                 hang        no byte of a reply ever comes
 *     cut       the connection ends after three tokens
 *
 * POST /script {"fail": MODE, "count": K, "tokens": N, "token_ms": M} changes that while it runs.
 * GET /seen counts the generate calls (calls), the open ones (open), those that the client left (left), those
 * that continue an output (continued), those with goes_on (handed) and those with a rank (ranked); it shows
 * the last kv_port that a call named and the last call's group and weight, and counts the orders to pull K
 * and V (pulls). With --pulls the engine claims to have pulled them, without it such an order gets a 404.
 * With --crowded it reports all its pages as held while a request runs.
 */
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/auth/auth_gate.h"
#include "base/io/auth/credentials.h"
#include "base/io/config/opt.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "base/text/bundle.h"
#include "base/wire/events.h"
#include "base/wire/generate.h"
#include "base/wire/kv_wire.h"
#include "base/wire/report.h"
#include "tests/unit/text/gguf_vocab.h"
#include "tests/unit/text/small_vocab.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DIE_AFTER_TOKENS 3
#define WEIGHTS "none"
#define PAGES 1024
#define IDS 256             /* the vocabulary's ids that end no output */
#define UNSENT_US 600000000 /* long, so that the router drops a slow reader first */

enum fail {
    FAIL_NONE,
    FAIL_BUSY,
    FAIL_ERROR,
    FAIL_GARBAGE,
    FAIL_CUT,
    FAIL_DIE_EARLY,
    FAIL_DIE_LATE,
    FAIL_HANG,
    FAIL_COUNT
};
static const char *const fail_names[] = { "none",      "busy",     "error", "garbage", "cut",
                                          "die_early", "die_late", "hang",  NULL };

struct options {
    struct str chat_template, vocab;
    int64_t port, tokens, token_ms, fail_count, context, running_max;
    int fail;
    struct str name, secret_file;
    bool untold, crowded, pulls, stamped;
};

struct fake {
    struct loop *loop;
    struct options options;
    struct buf bundle;
    char digest[SHA256_HEX + 1];
    uint64_t boot;
    uint64_t calls, continued, handed, kv_port, pulled;
    uint64_t ranked, group; /* calls with a rank; the last call's group, and its weight */
    double weight;
    int64_t open, left;
    struct http_exchange *events; /* the last reader's */
    struct credentials held;
    struct auth_gate gate; /* without a secret: unused */
};

struct stream {
    struct fake *fake;
    struct http_exchange *x;
    struct loop_timer timer;
    uint64_t prompt_hash;
    uint32_t prompt_tokens, before, sent, wanted;
    int64_t token_us;
    enum fail fail;
};

static void tell_load(struct fake *f)
{
    CLEANUP(buf_fini) struct buf line = { 0 };
    struct block_event load = { .kind = EVENT_LOAD,
                                .running = (uint32_t)f->open,
                                .kv_tokens = f->open > 0 ? PAGES * BLOCK_TOKENS : 0 };
    if (!f->options.crowded || !f->events) return;
    block_event_encode(&load, &line);
    http_stream_write(f->events, line.data, line.len);
}

static void stream_free(struct stream *s)
{
    loop_timer_clear(s->fake->loop, &s->timer);
    s->fake->open--;
    tell_load(s->fake);
    free(s);
}

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    struct stream *s = arg;
    s->fake->left++;
    stream_free(s);
}

static void write_frame(struct stream *s, const struct generate_frame *frame)
{
    CLEANUP(buf_fini) struct buf line = { 0 };
    generate_frame_encode(frame, &line);
    http_stream_write(s->x, line.data, line.len);
}

static void finish(struct stream *s)
{
    bool whole = s->sent == (uint32_t)s->fake->options.tokens;
    struct generate_frame last = { .finish = whole ? FINISH_STOP : FINISH_LENGTH,
                                   .has_usage = true,
                                   .usage = { s->prompt_tokens, 0, s->sent - s->before } };
    write_frame(s, &last);
    http_stream_end(s->x);
    stream_free(s);
}

/* Fails the stream here if the script says so; returns true if that ended the stream. */
static bool fail_now(struct stream *s)
{
    if (s->sent - s->before < DIE_AFTER_TOKENS) return false;
    if (s->fail == FAIL_DIE_LATE) kill(getpid(), SIGKILL);
    if (s->fail == FAIL_GARBAGE) http_stream_write(s->x, "{\"ids\":[}\n", 10);
    if (s->fail != FAIL_CUT) return false;
    http_exchange_abort(s->x);
    stream_free(s);
    return true;
}

static uint64_t token_hash(const struct stream *s, uint32_t at)
{
    return hash64(&at, sizeof at, s->prompt_hash);
}

/* Returns true if the ids behind the prompt are the tokens that this engine would generate. */
static bool continues(const struct stream *s, const struct generate_request *g)
{
    for (uint32_t i = 0; i < s->before; i++)
        if (g->ids[g->prompt_tokens + i] != token_hash(s, i) % IDS) return false;
    return true;
}

static void on_token(void *arg)
{
    struct stream *s = arg;
    if (fail_now(s)) return;
    if (http_stream_full(s->x)) return; /* called again when there is room */
    if (s->sent == s->wanted) {
        finish(s);
        return;
    }
    char text[32];
    uint64_t h = token_hash(s, s->sent);
    if (s->fake->options.stamped)
        snprintf(text, sizeof text, "%lld.", (long long)clock_mono_us());
    else
        snprintf(text, sizeof text, "%08llx.", (unsigned long long)(h & 0xffffffff));
    uint32_t id = (uint32_t)(h % IDS);
    struct generate_frame frame = { .ids = &id, .id_count = 1, .text = str_from(text) };
    write_frame(s, &frame);
    s->sent++;
    loop_timer_set(s->fake->loop, &s->timer, loop_now_us(s->fake->loop) + s->token_us);
}

static void on_generate(struct fake *f, struct http_exchange *x)
{
    const struct http_request *req = http_exchange_request(x);
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct generate_request g;
    struct err err = { 0 };
    arena_init(&arena, 64 << 20);
    f->calls++;
    enum fail fail = FAIL_NONE;
    if (f->options.fail_count > 0) {
        f->options.fail_count--;
        fail = (enum fail)f->options.fail;
    }
    if (fail == FAIL_DIE_EARLY) kill(getpid(), SIGKILL);
    if (generate_decode(req->body, &arena, &g, &err) < 0) {
        http_reply(x, 400, STR("text/plain"), str_from(err.text));
        return;
    }
    if (fail == FAIL_BUSY || fail == FAIL_ERROR) {
        http_reply(x, fail == FAIL_BUSY ? 503 : 500, STR("text/plain"), STR("as scripted"));
        return;
    }
    struct stream *s = calloc(1, sizeof *s);
    if (!s) abort();
    *s = (struct stream){ .fake = f,
                          .x = x,
                          .timer = { .fn = on_token, .arg = s },
                          .prompt_hash = hash64(g.ids, g.prompt_tokens * sizeof *g.ids, 0),
                          .prompt_tokens = g.prompt_tokens,
                          .before = g.id_count - g.prompt_tokens,
                          .sent = g.id_count - g.prompt_tokens,
                          .token_us = f->options.token_ms * 1000,
                          .fail = fail };
    uint32_t most = s->before + g.max_tokens;
    s->wanted = (uint32_t)f->options.tokens < most ? (uint32_t)f->options.tokens : most;
    if (!continues(s, &g)) {
        http_reply(x, 400, STR("text/plain"), STR("those are not the tokens of this prompt"));
        free(s);
        return;
    }
    f->continued += s->before > 0;
    f->handed += g.goes_on;
    if (g.kv_port > 0) f->kv_port = g.kv_port;
    f->ranked += g.has_rank;
    f->group = g.group;
    f->weight = g.weight;
    f->open++;
    tell_load(f);
    http_exchange_watch(x, on_left, on_token, s);
    if (fail == FAIL_HANG) return;
    http_stream_begin(x, 200, STR("application/x-ndjson"));
    on_token(s);
}

static void on_info(struct fake *f, struct http_exchange *x)
{
    struct engine_report r = {
        .host = STR("127.0.0.1"),
        .port = (uint32_t)f->options.port,
        .kind = ENGINE_MUSTER,
        .health = ENGINE_READY,
        .model = STR("fake"),
        .digest = str_from(f->digest),
        .boot = f->boot,
        .page_tokens = 16,
        .context_tokens = (uint32_t)f->options.context,
        .running_max = (uint32_t)f->options.running_max,
        .pages_total = PAGES,
        .pages_free = PAGES,
        .has_perf = !f->options.untold,
        .perf = { .step_s = 0.001, .prefill_token_s = 1e-5, .decode_seq_s = 1e-4, .samples = 10 }
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    engine_report_encode(&r, &out);
    http_reply(x, 200, STR("application/json"), buf_view(&out));
}

/* Claims, with --pulls, that the K and V of the ids are now in the cache. */
static void on_pull(struct fake *f, struct http_exchange *x)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct kv_fetch_request ask;
    arena_init(&arena, 64 << 20);
    f->pulled++;
    if (!f->options.pulls ||
        kv_fetch_request_decode(http_exchange_request(x)->body, &arena, &ask, NULL) < 0) {
        http_reply(x, 404, STR("text/plain"), STR("no such path"));
        return;
    }
    const struct kv_fetch_reply reply = { ask.id_count - 1, ask.id_count - 1 };
    kv_fetch_reply_encode(&reply, &out);
    http_reply(x, 200, STR("application/json"), buf_view(&out));
}

static void events_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct fake *)arg)->events = NULL;
}

/* Begins a stream of events without blocks: hello, an empty snapshot, and then only loads. */
static void on_events(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    char salt[BLOCK_KEY_HEX + 1];
    struct str none = { 0 };
    block_key_hex(block_salt(block_seed(none), str_from(f->digest), none, none), salt);
    struct block_event hello = { .kind = EVENT_HELLO,
                                 .boot = f->boot,
                                 .block_tokens = BLOCK_TOKENS,
                                 .page_tokens = BLOCK_TOKENS,
                                 .digest = str_from(f->digest),
                                 .salt_check = str_from(salt) };
    struct block_event snapshot = { .kind = EVENT_SNAPSHOT };
    block_event_encode(&hello, &out);
    block_event_encode(&snapshot, &out);
    if (http_stream_begin(x, 200, STR("application/x-ndjson")) < 0) return;
    http_exchange_watch(x, events_left, NULL, f);
    http_stream_write(x, out.data, out.len);
    f->events = x;
}

static void on_seen(struct fake *f, struct http_exchange *x)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"calls\":%llu,\"open\":%lld,\"left\":%lld,\"continued\":%llu,\"handed\":%llu,"
             "\"kv_port\":%llu,\"pulls\":%llu,\"ranked\":%llu,\"group\":%llu,\"weight\":%.0f}",
             (unsigned long long)f->calls, (long long)f->open, (long long)f->left,
             (unsigned long long)f->continued, (unsigned long long)f->handed,
             (unsigned long long)f->kv_port, (unsigned long long)f->pulled,
             (unsigned long long)f->ranked, (unsigned long long)(f->group >> 12), f->weight);
    http_reply(x, 200, STR("application/json"), str_from(text));
}

static void on_script(struct fake *f, struct http_exchange *x)
{
    struct json_reader r;
    CLEANUP(buf_fini) struct buf mode = { 0 };
    json_reader_init(&r, http_exchange_request(x)->body);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        int64_t *number = json_key_is(&r, "count")      ? &f->options.fail_count
                          : json_key_is(&r, "tokens")   ? &f->options.tokens
                          : json_key_is(&r, "token_ms") ? &f->options.token_ms
                                                        : NULL;
        bool fail = json_key_is(&r, "fail");
        json_next(&r);
        if (number) json_i64(&r, number);
        if (fail) json_text(&r, &mode);
    }
    for (int i = 0; i < FAIL_COUNT; i++) {
        if (str_eq(buf_view(&mode), str_from(fail_names[i]))) f->options.fail = i;
    }
    http_reply(x, r.token == JSON_OBJECT_END ? 200 : 400, STR("text/plain"), STR("ok"));
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    struct str path = http_exchange_request(x)->path;
    if (str_eq(path, STR("/internal/generate"))) {
        on_generate(f, x);
    } else if (str_eq(path, STR("/internal/kv/pull"))) {
        on_pull(f, x);
    } else if (str_eq(path, STR("/internal/info"))) {
        on_info(f, x);
    } else if (str_eq(path, STR("/internal/events"))) {
        on_events(f, x);
    } else if (str_eq(path, STR("/internal/tokenizer"))) {
        http_reply_header(x, BUNDLE_WEIGHTS_HEADER, STR(WEIGHTS));
        http_reply(x, 200, STR("application/octet-stream"), buf_view(&f->bundle));
    } else if (str_eq(path, STR("/seen"))) {
        on_seen(f, x);
    } else if (str_eq(path, STR("/script"))) {
        on_script(f, x);
    } else {
        http_reply(x, 404, STR("text/plain"), STR("no such path"));
    }
}

static int make_bundle(struct fake *f, struct err *err)
{
    CLEANUP(vocab_freep)
    struct vocab *v =
        f->options.vocab.len > 0 ? gguf_vocab_load(f->options.vocab.data) : small_vocab("gpt-2");
    if (!v) return err_set(err, -EINVAL, "no vocabulary in '%s'", f->options.vocab.data);
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    int rc = chat_template_compile(f->options.chat_template, &t, err);
    if (rc < 0) return rc;
    char bundle_digest[SHA256_HEX + 1];
    rc = bundle_encode(v, t, &f->bundle, bundle_digest, err);
    if (rc == 0) bundle_identity(STR(WEIGHTS), bundle_digest, f->digest);
    return rc;
}

#define AT(member) .offset = offsetof(struct options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535, AT(port),
      .about = "Port on 127.0.0.1." },
    { .name = "tokens", .type = CONFIG_INT, .default_text = "8", .min = 0, .max = 1e6, AT(tokens),
      .about = "Tokens of every answer." },
    { .name = "token_ms", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e6,
      AT(token_ms), .about = "Milliseconds between tokens." },
    { .name = "fail", .type = CONFIG_ENUM, .default_text = "none", .names = fail_names, AT(fail),
      .about = "How calls fail." },
    { .name = "fail_count", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e6,
      AT(fail_count), .about = "Calls that fail." },
    { .name = "chat_template", .type = CONFIG_TEXT, AT(chat_template),
      .default_text =
          "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
      .about = "The template in the bundle." },
    { .name = "vocab", .type = CONFIG_TEXT, AT(vocab),
      .about = "GGUF file with the vocabulary of the bundle; none: a small one." },
    { .name = "context", .type = CONFIG_INT, .default_text = "4096", .min = 1, .max = 1e7,
      AT(context), .about = "Tokens of prompt and answer together." },
    { .name = "running_max", .type = CONFIG_INT, .default_text = "64", .min = 1, .max = 1e6,
      AT(running_max), .about = "Requests that it computes at once." },
    { .name = "stamped", .type = CONFIG_BOOL, .default_text = "false", AT(stamped),
      .about = "A token's text is the time at which it was written." },
    { .name = "untold", .type = CONFIG_BOOL, .default_text = "false", AT(untold),
      .about = "Reports say nothing of its speed, as right after a start." },
    { .name = "crowded", .type = CONFIG_BOOL, .default_text = "false", AT(crowded),
      .about = "All pages are held while anything runs." },
    { .name = "pulls", .type = CONFIG_BOOL, .default_text = "false", AT(pulls),
      .about = "Says that it has pulled what it was told to." },
    { .name = "name", .type = CONFIG_TEXT, .default_text = "fake", AT(name), .about = "Boot name." },
    { .name = "secret_file", .type = CONFIG_TEXT, AT(secret_file),
      .about = "The fleet's secret: what is asked by a part is signed; others are let in too." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct options, rows);
static const struct opt_command usage = { .name = "fake_engine",
                                          .about = "An engine that fails on command.",
                                          .options = &record };

/* Tells a part that does not know our epoch or time to ask again, as a real engine does. */
static void on_head(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    enum auth_identity who =
        auth_gate_head(&f->gate, x, http_exchange_note(x), loop_now_us(f->loop));
    if (who == AUTH_ASKED_AGAIN) http_reply(x, 401, STR("text/plain"), STR("again\n"));
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct fake *f = ctx;
    auth_gate_reply(&f->gate, x, http_exchange_note(x), status, body, loop_now_us(f->loop));
}

static int guard(struct fake *f, struct http_server_config *config, struct err *err)
{
    static const char *const ids[] = { "engine/", NULL };
    if (f->options.secret_file.len == 0) return 0;
    int rc = credentials_load(f->options.secret_file.data, &f->held, err);
    if (rc < 0) return rc;
    auth_gate_init(&f->gate, &f->held, ids, f->boot, loop_now_us(f->loop));
    config->on_head = on_head;
    config->on_reply = on_reply;
    return 0;
}

int main(int argc, char **argv)
{
    struct fake f = { 0 };
    struct opt_parsed parsed;
    struct err err = { 0 };
    struct http_server *server = NULL;
    signal(SIGPIPE, SIG_IGN);
    int rc = opt_parse(&usage, argc - 1, argv + 1, &f.options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    f.boot = (uint64_t)getpid() << 20 | (uint64_t)f.options.port;
    if (rc == 0) rc = make_bundle(&f, &err);
    if (rc == 0) rc = loop_new(&f.loop, &err);
    struct http_server_config config = {
        .host = "127.0.0.1",
        .port = (uint16_t)f.options.port,
        .limits = { .unsent_us = UNSENT_US },
        .on_request = on_request,
        .ctx = &f,
    };
    if (rc == 0) rc = guard(&f, &config, &err);
    if (rc == 0) rc = http_server_new(f.loop, &config, &server, &err);
    if (rc == 0) rc = loop_run(f.loop);
    if (rc < 0) fprintf(stderr, "fake_engine: %s\n", err_text(&err, rc));
    http_server_free(server);
    if (f.options.secret_file.len > 0) auth_gate_fini(&f.gate);
    loop_free(f.loop);
    buf_fini(&f.bundle);
    opt_parsed_fini(&parsed);
    return rc < 0;
}
