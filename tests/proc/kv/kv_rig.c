/* kv_rig.c - starts engines, sends them requests, reads frames and metrics. */
#include "tests/proc/kv/kv_rig.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ARENA_BYTES ((size_t)4 << 20)

char kv_tiny[64], kv_wide[64];
static int tiny_fd, wide_fd;
static char secret_path[256], header[160];
static uint16_t known[64]; /* ports of engines: other peers are not asked for their boot */
static uint32_t known_count;

void kv_rig_open(void)
{
    tiny_fd = tiny_model_path(TINY_CONTEXT_LONG, kv_tiny);
    wide_fd = wide_model_path(kv_wide);
    snprintf(secret_path, sizeof secret_path, "%s/secret", rig_folder());
    FILE *f = fopen(secret_path, "w");
    must(f && fputs(SECRET "\n", f) >= 0 && fclose(f) == 0);
    must(chmod(secret_path, 0600) == 0);
    snprintf(header, sizeof header, "authorization: Bearer " SECRET);
}

void kv_rig_close(void)
{
    close(tiny_fd);
    close(wide_fd);
}

const char *kv_rig_header(void)
{
    return header;
}

struct rig_process kv_engine(const char *model, const char *const *more)
{
    const char *args[RIG_ARGS_MAX] = { "--model",       model,       "--seed",      "7",
                                       "--secret-file", secret_path, "--log-level", "debug" };
    if (more) rig_add_args(args, 8, more);
    struct rig_process e = rig_server("engine", rig_port(), args);
    known[known_count++ % COUNT_OF(known)] = e.port;
    return e;
}

void kv_engine_stop(struct rig_process *e)
{
    assert_int_equal(rig_stop(e), 0);
}

int kv_post(const struct rig_process *e, const char *path, const struct buf *body,
            struct buf *reply)
{
    return rig_call_with(e->port, path, header, body->data, reply);
}

/* ---- requests --------------------------------------------------------------------------------- */

struct rig_process kv_a, kv_b;

int kv_two_open(void **state)
{
    (void)state;
    kv_a = kv_engine(kv_tiny, NULL);
    kv_b = kv_engine(kv_tiny, NULL);
    return 0;
}

int kv_two_close(void **state)
{
    (void)state;
    kv_engine_stop(&kv_a);
    kv_engine_stop(&kv_b);
    return 0;
}

void kv_answer_fini(struct kv_answer *a)
{
    buf_fini(&a->text);
}

void kv_generate(const struct rig_process *e, const struct generate_request *req,
                 struct kv_answer *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct err err = { "" };
    ret->count = 0;
    ret->finish = FINISH_NONE;
    ret->usage = (struct usage){ 0 };
    buf_clear(&ret->text);
    buf_text(&ret->text, "");
    arena_init(&arena, ARENA_BYTES);
    assert_int_equal(generate_encode(req, &body), 0);
    ret->status = kv_post(e, "/internal/generate", &body, &reply);
    if (ret->status != 200) return;
    for (struct str rest = buf_view(&reply); rest.len > 0;) {
        struct generate_frame frame;
        struct str line = str_cut(&rest, '\n');
        if (line.len == 0) continue;
        if (generate_frame_decode(line, &arena, &frame, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ret->finish, FINISH_NONE);
        assert_true(ret->count + frame.id_count <= KV_RIG_IDS_MAX);
        for (uint32_t i = 0; i < frame.id_count; i++)
            ret->ids[ret->count++] = frame.ids[i];
        buf_str(&ret->text, frame.text);
        if (frame.has_usage) ret->usage = frame.usage;
        ret->finish = frame.finish;
    }
    assert_int_not_equal(ret->finish, FINISH_NONE);
}

struct generate_request kv_request(uint32_t count, uint32_t seed)
{
    static uint32_t ids[KV_RIG_IDS_MAX];
    assert_true(count <= KV_RIG_IDS_MAX);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = 6 + (seed * 31 + i * 7 + i / 16) % 250;
    struct generate_request req = {
        .id = STR("kv"),
        .ids = ids,
        .id_count = count,
        .prompt_tokens = count,
        .sampling = SAMPLING_DEFAULT,
        .max_tokens = 4,
        .ignore_eos = true,
        .tenant = STR("one"),
    };
    req.sampling.temperature = 0;
    req.sampling.has_seed = true;
    req.sampling.seed = seed;
    return req;
}

void kv_ticket_make(uint16_t peer_port, struct str tenant, struct kv_ticket *ret)
{
    CLEANUP(buf_fini) struct buf info = { 0 };
    unsigned long long boot = 1; /* of a peer that is not an engine */
    bool is_engine = false;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        is_engine |= known[i] == peer_port;
    if (is_engine && rig_call_with(peer_port, "/internal/info", header, NULL, &info) == 200) {
        const char *at = strstr(info.data, "\"boot\":\"");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "\"boot\":\"%16llx", &boot), 1);
    }
    const struct auth_ticket t = {
        .reader = STR("reader"), .epoch = boot, .until_us = INT64_MAX, .tenant = tenant
    };
    struct auth_key key;
    assert_int_equal(auth_ticket_print(&t, ret->text), 0);
    assert_int_equal(auth_key_of(STR(SECRET), str_from(ret->text), &key), 0);
    hex_from(key.byte, sizeof key.byte, ret->key);
}

void kv_from_port(struct generate_request *req, uint16_t peer_port)
{
    static struct kv_ticket ticket;
    kv_ticket_make(peer_port, req->tenant, &ticket);
    req->kv_host = STR("127.0.0.1");
    req->kv_port = peer_port;
    req->kv_ticket = str_from(ticket.text);
    req->kv_key = str_from(ticket.key);
}

void kv_from(struct generate_request *req, const struct rig_process *peer)
{
    kv_from_port(req, peer->port);
}

struct str kv_rig_secret(void)
{
    return STR(SECRET);
}

struct kv_fetch_reply kv_fetch_now(const struct rig_process *e, const uint32_t *ids, uint32_t count,
                                   const char *tenant, uint16_t peer_port)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct kv_fetch_reply reply;
    struct kv_ticket ticket;
    kv_ticket_make(peer_port, str_from(tenant), &ticket);
    const struct kv_fetch_request req = { ids,
                                          count,
                                          str_from(tenant),
                                          STR("127.0.0.1"),
                                          peer_port,
                                          str_from(ticket.text),
                                          str_from(ticket.key),
                                          false };
    arena_init(&arena, ARENA_BYTES);
    assert_int_equal(kv_fetch_request_encode(&req, &body), 0);
    assert_int_equal(kv_post(e, "/internal/kv/pull", &body, &text), 200);
    assert_int_equal(kv_fetch_reply_decode(buf_view(&text), &arena, &reply, NULL), 0);
    return reply;
}

/* ---- metrics ---------------------------------------------------------------------------------- */

double kv_metric(const struct rig_process *e, const char *name)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char line[160];
    assert_int_equal(rig_call_with(e->port, "/metrics", header, NULL, &text), 200);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text.data, line);
    return at ? strtod(at + strlen(line), NULL) : -1;
}

void kv_wait_metric(const struct rig_process *e, const char *name, double wanted)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    double seen;
    while ((seen = kv_metric(e, name)) < wanted || seen > wanted) {
        if (clock_mono_us() > until_us) fail_msg("%s stays %g, not %g", name, seen, wanted);
        usleep(5000);
    }
}
