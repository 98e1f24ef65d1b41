/* text.c - measures what a request's bytes cost, and how much they delay other clients.
 *
 *     MUSTER_BIN=build/muster FAKE_ENGINE_BIN=build/tests/proc/rig/fake_engine \
 *         build/tests/bench/bench_text [SECONDS]
 *
 * The first table has the CPU nanoseconds a byte of each kind of body, with the shipped model's
 * vocabulary: at 16,000 bytes (just below TEXT_INLINE_BYTES), as a byte loop works on it, and at 7 MiB,
 * as a text worker does. The second is of a router with one byte loop and a scripted engine: one client
 * sends such bodies back to back for SECONDS while another reads a stream of a token each 5 ms and a
 * third sends GET /health each 10 ms. CSV on stdout. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/text/encode.h"
#include "base/wire/openai.h"
#include "tests/proc/rig/rig.h"
#include "tests/unit/text/collisions.h"
#include "tests/unit/text/gguf_vocab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SMALL ((size_t)16000)
#define LARGE ((size_t)7 << 20)
#define CONTEXT 131072
#define ARENA_BYTES ((size_t)32 << 20)
/* Of each body; the least counts, which no other work on the machine made longer. */
#define TRIES 15
#define WAITS_MAX 100000
#define CHAT "/v1/chat/completions"

/* ---- bodies ---------------------------------------------------------------------------------- */

static void fill(struct buf *out, const char *head, const char *item, size_t bytes,
                 const char *tail)
{
    buf_text(out, head);
    for (bool first = true; out->len < bytes; first = false) {
        if (!first && item[0] == ',') buf_text(out, item);
        if (first || item[0] != ',') buf_text(out, item + (item[0] == ','));
    }
    buf_text(out, tail);
}

static void words(struct buf *out, size_t bytes)
{
    fill(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "the quick brown fox jumped. ",
         bytes, "\"}],\"max_tokens\":1}");
}

static void one_word(struct buf *out, size_t bytes)
{
    fill(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "etaoinshrdlu", bytes,
         "\"}],\"max_tokens\":1}");
}

static void escapes(struct buf *out, size_t bytes)
{
    fill(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\\u00e4\\n", bytes,
         "\"}],\"max_tokens\":1}");
}

static void messages(struct buf *out, size_t bytes)
{
    size_t each = bytes / 4000 > 40 ? bytes / 4000 - 30 : 1;
    buf_text(out, "{\"max_tokens\":1,\"messages\":[");
    for (uint32_t i = 0; i < 4000 && out->len < bytes; i++)
        buf_printf(out, "%s{\"role\":\"user\",\"content\":\"%0*u\"}", i ? "," : "", (int)each, i);
    buf_text(out, "]}");
}

static void parts(struct buf *out, size_t bytes)
{
    size_t each = bytes / 1000 > 60 ? bytes / 1000 - 40 : 1;
    buf_text(out, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[");
    for (uint32_t i = 0; i < 1000 && out->len < bytes; i++)
        buf_printf(out, "%s{\"type\":\"text\",\"text\":\"%0*u\"}", i ? "," : "", (int)each, i);
    buf_text(out, "]}]}");
}

#define COLLIDING 60000

/* Returns the nth of keys whose hash64 ends in the same 17 bits. Making all takes half a minute. */
static const char *colliding_key(uint32_t n)
{
    static char key[COLLIDING][9];
    static uint32_t made;
    static uint64_t state = 88172645463325253u;
    for (; made <= n; made++)
        collision_fast(17, &state, key[made]);
    return key[n];
}

static void objects(struct buf *out, size_t bytes, bool collide)
{
    fill(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":1,\"tools\":[",
         "", 0, "");
    for (uint32_t i = 0; i < 500 && out->len + 40 < bytes; i++) {
        buf_text(out, i ? ",{" : "{");
        for (uint32_t k = 0; k < 1000 && out->len + 20 < bytes; k++) {
            if (collide)
                buf_printf(out, "%s\"%s\":0", k ? "," : "", colliding_key(k));
            else
                buf_printf(out, "%s\"k%07u\":0", k ? "," : "", k);
        }
        buf_text(out, "}");
    }
    buf_text(out, "]}");
}

static void keys(struct buf *out, size_t bytes)
{
    objects(out, bytes, false);
}

static void colliding(struct buf *out, size_t bytes)
{
    objects(out, bytes, true);
}

/* Makes a body with one object of as many colliding keys as fit, which is refused. */
static void flood(struct buf *out, size_t bytes)
{
    buf_text(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":1,"
                  "\"chat_template_kwargs\":{\"k\":0");
    for (uint32_t i = 0; i < COLLIDING && out->len < bytes; i++)
        buf_printf(out, ",\"%s\":0", colliding_key(i));
    buf_text(out, "}}");
}

static void unknown_keys(struct buf *out, size_t bytes)
{
    fill(out, "{\"metadata\":[", ",{\"a\":{\"b\":{\"c\":[0,\"d\",null]}}}", bytes,
         "],\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":1}");
}

static void text(struct buf *out, size_t bytes)
{
    fill(out, "{\"prompt\":\"", "the quick brown fox jumped. ", bytes, "\"}");
}

static void ids(struct buf *out, size_t bytes)
{
    fill(out, "{\"tokens\":[", ",300", bytes, "]}");
}

static const struct kind {
    const char *name, *path;
    void (*make)(struct buf *out, size_t bytes);
} kinds[] = {
    { "words", CHAT, words },
    { "one word", CHAT, one_word },
    { "escapes", CHAT, escapes },
    { "messages", CHAT, messages },
    { "parts", CHAT, parts },
    { "tools of 1,000 keys", CHAT, keys },
    { "the same, made to collide", CHAT, colliding },
    { "60,000 colliding kwargs", CHAT, flood },
    { "unknown keys", CHAT, unknown_keys },
    { "/tokenize", "/tokenize", text },
    { "/detokenize", "/detokenize", ids },
};

/* ---- cost a byte --------------------------------------------------------------------------- */

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Does a router's work on the body. Returns 0, or the error of the bound that ended it. */
static int work_on(const struct kind *kind, const struct encode_model *m, struct str body)
{
    struct err err = { "" };
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(ids_fini) struct ids made = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    if (strcmp(kind->path, CHAT) != 0) {
        struct token_ask ask;
        bool to_ids = strcmp(kind->path, "/tokenize") == 0;
        int rc =
            token_ask_read(to_ids ? TOKEN_ASK_TOKENIZE : TOKEN_ASK_DETOKENIZE, body, &ask, &err);
        if (rc == 0) rc = token_ask_answer(&ask, m, CONTEXT, &out, &err);
        token_ask_fini(&ask);
        return rc;
    }
    struct openai_request r;
    struct openai_error e;
    arena_init(&arena, ARENA_BYTES);
    int rc = openai_parse(OPENAI_CHAT, body, &arena, &r, &e);
    struct encode_chat chat = { .messages = r.messages,
                                .tools = r.tools,
                                .kwargs = r.chat_template_kwargs,
                                .generation_prompt = true };
    return rc < 0 ? rc : encode_chat(m, &chat, CONTEXT + 1, &made, &err);
}

static double ns_a_byte(const struct kind *kind, const struct encode_model *m, size_t bytes,
                        int *ret_rc)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    kind->make(&body, bytes);
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t from = cpu_ns();
        *ret_rc = work_on(kind, m, buf_view(&body));
        least = min_i64(least, cpu_ns() - from);
    }
    return (double)least / (double)body.len;
}

static void show_costs(void)
{
    CLEANUP(vocab_freep) struct vocab *v = gguf_vocab_load(MODEL);
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    static const char chatml[] =
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + "
        "m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}<|im_start|>assistant\\n";
    must(v && chat_template_compile(str_from(chatml), &t, NULL) == 0);
    const struct encode_model m = { v, t };
    printf("body,ns_a_byte_16k,rc_16k,ns_a_byte_7m,rc_7m\n");
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        int small_rc, large_rc;
        double small = ns_a_byte(&kinds[i], &m, SMALL, &small_rc);
        double large = ns_a_byte(&kinds[i], &m, LARGE, &large_rc);
        printf("\"%s\",%.1f,%d,%.1f,%d\n", kinds[i].name, small, small_rc, large, large_rc);
    }
}

/* ---- delay of other clients ----------------------------------------------------------------- */

struct watch {
    uint16_t port;
    atomic_bool stop;
    int64_t wait_us[WAITS_MAX];
    uint32_t waits;
};

static void watch_note(struct watch *w, int64_t us)
{
    if (w->waits < WAITS_MAX) w->wait_us[w->waits++] = us;
}

/* Reads one stream and notes the gaps between arrivals. */
static void *read_stream(void *arg)
{
    struct watch *w = arg;
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"}],\"stream\":"
                               "true,\"max_tokens\":90000}";
    char bytes[65536];
    int len = snprintf(bytes, sizeof bytes,
                       "POST " CHAT " HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
                       "application/json\r\ncontent-length: %zu\r\n\r\n%s",
                       sizeof body - 1, body);
    int fd = rig_connect(w->port, 0);
    must(send(fd, bytes, (size_t)len, MSG_NOSIGNAL) == len);
    int64_t last_us = 0;
    while (!w->stop && recv(fd, bytes, sizeof bytes, 0) > 0) {
        int64_t now_us = clock_mono_us();
        if (last_us > 0) watch_note(w, now_us - last_us);
        last_us = now_us;
    }
    close(fd);
    return NULL;
}

static void *ask_health(void *arg)
{
    struct watch *w = arg;
    static const char ask[] = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    char reply[4096];
    int fd = rig_connect(w->port, 0);
    while (!w->stop) {
        int64_t from_us = clock_mono_us();
        must(send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == sizeof ask - 1);
        if (recv(fd, reply, sizeof reply, 0) <= 0) break;
        watch_note(w, clock_mono_us() - from_us);
        usleep(10000);
    }
    close(fd);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(struct watch *w, double q)
{
    if (w->waits == 0) return -1;
    qsort(w->wait_us, w->waits, sizeof w->wait_us[0], by_size);
    return (double)w->wait_us[(uint32_t)((double)(w->waits - 1) * q)] * 1e-3;
}

/* Sends bodies of `kind` (NULL: none) and prints the delays of the two other clients. */
static void show_attack(uint16_t port, const struct kind *kind, size_t bytes, int seconds)
{
    static struct watch stream, health;
    pthread_t reader, asker;
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    uint32_t replies = 0;
    int status = 0;
    stream = (struct watch){ .port = port };
    health = (struct watch){ .port = port };
    if (kind) kind->make(&body, bytes);
    must(pthread_create(&reader, NULL, read_stream, &stream) == 0);
    must(pthread_create(&asker, NULL, ask_health, &health) == 0);
    int64_t until_us = clock_mono_us() + seconds * 1000000LL;
    while (clock_mono_us() < until_us) {
        if (!kind) usleep(100000);
        if (kind) status = rig_call(port, kind->path, body.data, &reply);
        replies++;
    }
    stream.stop = health.stop = true;
    pthread_join(asker, NULL);
    pthread_join(reader, NULL);
    printf("\"%s\",%zu,%u,%d,%.1f,%.1f,%.1f,%.1f\n", kind ? kind->name : "nothing", body.len,
           kind ? replies : 0, status, quantile_ms(&stream, 0.99), quantile_ms(&stream, 1),
           quantile_ms(&health, 0.99), quantile_ms(&health, 1));
    fflush(stdout);
}

static void show_attacks(int seconds)
{
    uint16_t engine_port = rig_port(), port = rig_port();
    char at[32], context[16];
    snprintf(at, sizeof at, "127.0.0.1:%u", engine_port);
    snprintf(context, sizeof context, "%d", CONTEXT);
    rig_fake_engine(engine_port,
                    ARGS("--tokens", "100000", "--token-ms", "5", "--context", context));
    struct rig_process router = rig_server("router", port, ARGS("--endpoints", at));
    rig_wait_endpoints(&router, 1);
    printf("attack,bytes,replies,status,gap_p99_ms,gap_max_ms,health_p99_ms,health_max_ms\n");
    show_attack(port, NULL, 0, seconds);
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        show_attack(port, &kinds[i], LARGE, seconds);
    for (size_t i = 0; i < 5; i++)
        show_attack(port, &kinds[i], SMALL, seconds);
}

int main(int argc, char **argv)
{
    uint64_t seconds = 5;
    if (argc > 1 && (str_to_u64(str_from(argv[1]), &seconds) < 0 || seconds > 600)) return 2;
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN"))) return RIG_SKIP;
    show_costs();
    show_attacks((int)seconds);
    return rig_end(0);
}
