/* pull_seed.c - reads the list of agents and asks each for its seal. */
#include "cli/pull/pull_seed.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/wire/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define SEAL_US 15000000 /* deadline of a seal: megabytes at most */
#define SEAL_ARENA_BYTES (2 * SEAL_BYTES_MAX)

struct seed_list {
    const struct wire_seed *seeds;
    uint32_t seed_count;
};
static const struct field list_rows[] = {
    FIELD_ARRAY("seeds", struct seed_list, seeds, seed_count, FIELD_LIST, PULL_SEEDS_MAX,
                .of = &wire_seed_set),
};
static const struct field_set list_set = FIELD_SET(struct seed_list, list_rows);

int pull_seeds_open(struct pull_seeds *s, struct loop *loop, const char *path, struct str sha256,
                    struct err *err)
{
    const struct http_client_config client = { 0 };
    *s = (struct pull_seeds){ .loop = loop, .path = path, .sha256 = sha256 };
    int rc = http_client_new(loop, &client, &s->client, err);
    const struct signer_config signer = { .loop = loop, .client = s->client };
    return rc < 0 ? rc : signer_new(&signer, &s->signer, err);
}

void pull_seeds_close(struct pull_seeds *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        peer_call_fini(&s->list[i].call);
        arena_fini(&s->list[i].arena);
        explicit_bzero(&s->list[i].key, sizeof s->list[i].key);
    }
    if (s->client) http_client_free(s->client);
    if (s->signer) signer_free(s->signer);
    *s = (struct pull_seeds){ 0 };
}

/* ---- seals */

static void on_seal(struct peer_call *call, enum http_end end)
{
    struct pull_seed *d = CONTAINER_OF(call, struct pull_seed, call);
    struct err err = { 0 };
    struct str sha256 = str_from(d->seal.sha256);
    char wanted[SHA256_HEX + 1];
    snprintf(wanted, sizeof wanted, STR_FMT, STR_ARG(sha256));
    int rc = -EIO;
    if (peer_call_is_good(call, end)) {
        arena_init(&d->arena, SEAL_ARENA_BYTES);
        rc = seal_read(buf_view(&call->body), str_from(wanted), &d->arena, &d->seal, &err);
    }
    d->state = rc == 0 ? PULL_SEED_READY : PULL_SEED_GONE;
    buf_fini(&call->body);
    if (rc < 0)
        fprintf(stderr, "agent %s:%u: no seal: %s\n", d->host, d->port,
                rc == -EIO ? http_end_text(end) : err.text);
}

static struct signed_as identity_of(const struct pull_seed *d)
{
    return (struct signed_as){ str_from(d->id), d->key };
}

static void ask_seal(struct pull_seeds *s, struct pull_seed *d)
{
    char path[128];
    snprintf(path, sizeof path, "/internal/weights/" STR_FMT, STR_ARG(s->sha256));
    snprintf(d->seal.sha256, sizeof d->seal.sha256, STR_FMT, STR_ARG(s->sha256));
    const struct peer_question q = { .host = str_from(d->host),
                                     .port = (uint16_t)d->port,
                                     .as = identity_of(d),
                                     .path = str_from(path),
                                     .reply_max = SEAL_BYTES_MAX,
                                     .deadline_us = loop_now_us(s->loop) + SEAL_US };
    d->state = PULL_SEED_ASKED;
    if (peer_call_start(&d->call, s->signer, &q, on_seal, NULL) < 0) d->state = PULL_SEED_GONE;
}

/* ---- the list */

static bool is_known(const struct pull_seeds *s, const struct wire_seed *w)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->list[i].port == w->port && str_eq(str_from(s->list[i].host), w->host)) return true;
    return false;
}

static void add(struct pull_seeds *s, const struct wire_seed *w)
{
    if (s->count == PULL_SEEDS_MAX || w->tls || is_known(s, w)) return;
    struct pull_seed *d = &s->list[s->count];
    *d = (struct pull_seed){ .port = w->port };
    if (w->id.len >= sizeof d->id || w->host.len >= sizeof d->host) return;
    if (w->id.len > 0 && hex_to(w->key, d->key.byte, sizeof d->key.byte) < 0) return;
    snprintf(d->host, sizeof d->host, STR_FMT, STR_ARG(w->host));
    snprintf(d->id, sizeof d->id, STR_FMT, STR_ARG(w->id));
    s->count++;
    ask_seal(s, d);
}

void pull_seeds_look(struct pull_seeds *s)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct seed_list list = { 0 };
    struct stat st;
    arena_init(&arena, 4 * FILE_BYTES_MAX);
    if (stat(s->path, &st) < 0) return;
    int64_t changed_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (changed_ns == s->changed_ns) return;
    s->changed_ns = changed_ns;
    if (file_read(s->path, FILE_BYTES_MAX, &text, NULL) == 0 &&
        fields_decode(&list_set, buf_view(&text), &arena, &list, "the list of agents", NULL) == 0)
        for (uint32_t i = 0; i < list.seed_count; i++)
            add(s, &list.seeds[i]);
    if (text.data) explicit_bzero(text.data, text.len);
}

bool pull_seeds_wait(const struct pull_seeds *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->list[i].state == PULL_SEED_ASKED) return true;
    return false;
}

uint32_t pull_seeds_next(const struct pull_seeds *s, uint32_t first)
{
    for (uint32_t i = first; i < s->count; i++)
        if (s->list[i].state == PULL_SEED_READY && !s->list[i].liar) return i;
    return PULL_SEEDS_MAX;
}

struct signed_call *pull_seeds_ask(struct pull_seeds *s, uint32_t seed, uint32_t file,
                                   uint32_t chunk, struct http_call_request *req)
{
    const struct pull_seed *d = &s->list[seed];
    const struct signed_as as = identity_of(d);
    char path[160];
    snprintf(path, sizeof path, "/internal/weights/" STR_FMT "/%u/%u", STR_ARG(s->sha256), file,
             chunk);
    req->host = str_from(d->host);
    req->port = (uint16_t)d->port;
    req->path = str_from(path);
    return signed_call_start(s->signer, req, &as, true, NULL);
}

void pull_seeds_blame(struct pull_seeds *s, uint32_t seed, const char *why)
{
    struct pull_seed *d = &s->list[seed];
    if (d->liar) return;
    d->liar = true;
    fprintf(stderr, "agent %s:%u is not asked again: %s\n", d->host, d->port, why);
}
