/* tenants.c - who may ask, how much, and what they have used.
 *
 * A key is 32 random bytes; its SHA-256 is kept, which is enough for a key that nobody can guess (a
 * slow hash protects short passwords, and this is none). Usage comes as counters of routers that
 * restart, so that it is added up by differences for each router. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "base/wire/sync.h"
#include "controller/control_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define KEY_RANDOM_BYTES 20 /* 160 bits */
#define SALT_RANDOM_BYTES 16
#define FLUSH_BATCH 16 /* records written by one tick: each is an fsync */
_Static_assert(sizeof "muster-" + 2 * KEY_RANDOM_BYTES <= TENANT_KEY_BYTES, "TENANT_KEY_BYTES");

/* ---- records ---- */

#define RECORD_VERSION 1 /* of its own, as an intent's (core/intent.c) */

struct record {
    struct str name, key_hash, salt;
    uint32_t v, requests_per_min, tokens_per_min, concurrency;
    double weight;
    int64_t created_us;
    uint64_t requests, rejected, prompt_tokens, cached_tokens, generated_tokens;
};

static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = RECORD_VERSION),
    FIELD(struct record, name, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD(struct record, key_hash, FIELD_STR, .required = true, .min = 64, .max = 64),
    FIELD(struct record, salt, FIELD_STR, .required = true, .min = 32, .max = 32),
    FIELD(struct record, requests_per_min, FIELD_U32),
    FIELD(struct record, tokens_per_min, FIELD_U32),
    FIELD(struct record, concurrency, FIELD_U32),
    FIELD(struct record, weight, FIELD_F64, .max = TENANT_WEIGHT_MAX),
    FIELD(struct record, created_us, FIELD_I64, .min = 0, .max = 9e15),
    FIELD(struct record, requests, FIELD_U64),
    FIELD(struct record, rejected, FIELD_U64),
    FIELD(struct record, prompt_tokens, FIELD_U64),
    FIELD(struct record, cached_tokens, FIELD_U64),
    FIELD(struct record, generated_tokens, FIELD_U64),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

static int store_tenant(struct control *c, struct tenant *t, struct err *err)
{
    struct record r = { .v = RECORD_VERSION,
                        .name = str_from(t->name),
                        .key_hash = str_from(t->key_hash),
                        .salt = str_from(t->salt),
                        .requests_per_min = t->limits.requests_per_min,
                        .tokens_per_min = t->limits.tokens_per_min,
                        .concurrency = t->limits.concurrency,
                        .weight = t->limits.weight,
                        .created_us = t->created_us,
                        .requests = t->usage.requests,
                        .rejected = t->usage.rejected,
                        .prompt_tokens = t->usage.prompt_tokens,
                        .cached_tokens = t->usage.cached_tokens,
                        .generated_tokens = t->usage.generated_tokens };
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    buf_printf(&key, "tenant/%s", t->name);
    int rc = key.rc ? key.rc : fields_encode(&record_set, &r, &text);
    if (rc < 0) return err_set(err, rc, "no memory for tenant %s", t->name);
    return store_put_if(c->setup.store, buf_view(&key), buf_view(&text),
                        t->version ? t->version : STORE_ABSENT, &t->version, err);
}

struct restoring {
    struct control *c;
    struct err *err;
};

static int restore_tenant(void *ctx, const struct store_entry *e)
{
    struct restoring *job = ctx;
    struct control *c = job->c;
    if (c->people.tenant_count == CONTROL_TENANTS_MAX)
        return err_set(job->err, -ENOSPC, "the store holds more than %d tenants",
                       CONTROL_TENANTS_MAX);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 16384);
    struct record r = { 0 };
    struct err why = { 0 };
    int rc = fields_decode(&record_set, e->value, &arena, &r, "the stored tenant", &why);
    if (rc == -ENOMEM) return err_set(job->err, rc, "%s", err_text(&why, rc));
    if (rc < 0) { /* its key opens nothing until somebody can read it */
        control_set_aside(c, e->key, err_text(&why, rc));
        return 0;
    }
    struct tenant t = { .limits = { r.requests_per_min, r.tokens_per_min, r.concurrency, r.weight },
                        .created_us = r.created_us,
                        .usage = { r.requests, r.rejected, r.prompt_tokens, r.cached_tokens,
                                   r.generated_tokens },
                        .serial = ++c->people.tenant_serial,
                        .version = e->version };
    must(name_copy(t.name, sizeof t.name, r.name) == 0);
    must(name_copy(t.key_hash, sizeof t.key_hash, r.key_hash) == 0);
    must(name_copy(t.salt, sizeof t.salt, r.salt) == 0);
    c->people.tenant[c->people.tenant_count++] = t;
    return 0;
}

/* The list's version must differ from one of before a restart: it starts at fleet time. */
int tenants_restore(struct control *c, struct err *err)
{
    struct restoring job = { c, err };
    c->people.tenants_version = (uint64_t)c->started_us;
    return store_list(c->setup.store, STR("tenant/"), restore_tenant, &job, err);
}

/* ---- people ---- */

static struct tenant *find_tenant(struct control *c, struct str name)
{
    for (uint32_t i = 0; i < c->people.tenant_count; i++)
        if (str_eq(str_from(c->people.tenant[i].name), name)) return &c->people.tenant[i];
    return NULL;
}

/* Names go into labels, keys and salts: plain ones only. */
bool tenant_name_is_plain(struct str name)
{
    if (name.len == 0 || name.len >= NAME_BYTES) return false;
    for (size_t i = 0; i < name.len; i++) {
        char ch = name.data[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        if (!letter && !(ch >= '0' && ch <= '9') && ch != '-' && ch != '_' && ch != '.')
            return false;
    }
    return true;
}

int tenant_random_hex(char *ret, size_t bytes, struct err *err)
{
    uint8_t raw[64];
    must(bytes <= sizeof raw);
    if (getrandom(raw, bytes, 0) != (ssize_t)bytes)
        return err_set(err, -EIO, "the system gives no random bytes");
    hex_from(raw, bytes, ret);
    explicit_bzero(raw, sizeof raw);
    return 0;
}

int control_tenant_add(struct control *c, struct str name, const struct tenant_limits *limits,
                       int64_t date_us, char ret_key[TENANT_KEY_BYTES], struct err *err)
{
    if (!tenant_name_is_plain(name))
        return err_set(err, -EINVAL,
                       "a tenant's name has 1 to %d letters, digits, '-', '_' and '.'",
                       NAME_BYTES - 1);
    if (find_tenant(c, name))
        return err_set(err, -EEXIST, "tenant " STR_FMT " exists already", STR_ARG(name));
    if (c->people.tenant_count == CONTROL_TENANTS_MAX) {
        control_bound_reached(c, "tenants");
        return err_set(err, -ENOSPC, "%d tenants is the limit", CONTROL_TENANTS_MAX);
    }
    struct tenant t = { .limits = *limits,
                        .created_us = date_us,
                        .serial = ++c->people.tenant_serial };
    must(name_copy(t.name, sizeof t.name, name) == 0);
    char secret[2 * KEY_RANDOM_BYTES + 1], key[TENANT_KEY_BYTES];
    int rc = tenant_random_hex(secret, KEY_RANDOM_BYTES, err);
    if (rc == 0) rc = tenant_random_hex(t.salt, SALT_RANDOM_BYTES, err);
    if (rc < 0) return rc;
    int len = snprintf(key, sizeof key, "muster-%s", secret);
    uint8_t digest[SHA256_BYTES];
    sha256(key, (size_t)len, digest);
    hex_from(digest, sizeof digest, t.key_hash);
    rc = keys_close(c, err);
    if (rc == 0) rc = store_tenant(c, &t, err);
    if (rc < 0) return rc;
    c->people.tenant[c->people.tenant_count++] = t;
    c->people.tenants_version++;
    memcpy(ret_key, key, sizeof key);
    log_event(LOG_INFO, "tenant_added", "tenant=%s", t.name);
    return 0;
}

int control_tenant_remove(struct control *c, struct str name, struct err *err)
{
    struct tenant *t = find_tenant(c, name);
    if (!t) return err_set(err, -ENOENT, "there is no tenant '" STR_FMT "'", STR_ARG(name));
    CLEANUP(buf_fini) struct buf key = { 0 };
    buf_printf(&key, "tenant/%s", t->name);
    int rc = key.rc ? key.rc : store_delete_if(c->setup.store, buf_view(&key), STORE_ANY, err);
    if (rc < 0) return rc;
    log_event(LOG_INFO, "tenant_removed", "tenant=%s", t->name);
    uint32_t at = (uint32_t)(t - c->people.tenant), last = --c->people.tenant_count;
    c->people.tenant[at] = c->people.tenant[last];
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) { /* what routers counted moves along */
        struct usage_seen *seen = c->observed.router[r].usage;
        seen[at] = seen[last];
        seen[last] = (struct usage_seen){ 0 };
    }
    c->people.tenants_version++;
    return 0;
}

int tenants_rules(const struct control *c, struct arena *arena, const struct tenant_rules **ret,
                  uint32_t *ret_count)
{
    struct tenant_rules *rules = arena_array(arena, c->people.tenant_count, sizeof *rules);
    struct str *hash = arena_array(arena, c->people.tenant_count, sizeof *hash);
    if (!rules || !hash) return -ENOMEM;
    for (uint32_t i = 0; i < c->people.tenant_count; i++) {
        const struct tenant *t = &c->people.tenant[i];
        hash[i] = str_from(t->key_hash);
        rules[i] = (struct tenant_rules){ .tenant = str_from(t->name),
                                          .key_hashes = &hash[i],
                                          .key_hash_count = 1,
                                          .requests_per_min = t->limits.requests_per_min,
                                          .tokens_per_min = t->limits.tokens_per_min,
                                          .concurrency = t->limits.concurrency,
                                          .weight = t->limits.weight,
                                          .salt = str_from(t->salt) };
    }
    *ret = rules;
    *ret_count = c->people.tenant_count;
    return 0;
}

/* ---- usage ---- */

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void add_usage(struct tenant *t, const struct usage *now, const struct usage *before)
{
    struct usage *u = &t->usage;
    uint64_t sum = u->requests + u->rejected;
    u->requests += grown(now->requests, before->requests);
    u->rejected += grown(now->rejected, before->rejected);
    u->prompt_tokens += grown(now->prompt_tokens, before->prompt_tokens);
    u->cached_tokens += grown(now->cached_tokens, before->cached_tokens);
    u->generated_tokens += grown(now->generated_tokens, before->generated_tokens);
    if (u->requests + u->rejected != sum) t->dirty = true;
}

/* Called before the router's boot and sequence are brought up to date. Counters that we meet for
 * the first time after our own restart are taken as seen already when the router is older than we
 * are to it: what was not flushed before a crash is lost, at most TENANT_FLUSH_US of it, rather
 * than all of a router's life counted twice. */
void tenants_take_usage(struct control *c, struct router *r, const struct router_sync *s)
{
    bool same_boot = r->heard_us && r->boot == s->boot;
    if (same_boot && s->seq <= r->seq) return;
    bool first = r->heard_us == 0;
    for (uint32_t i = 0; i < s->usage_count; i++) {
        const struct tenant_usage *u = &s->usage[i];
        struct tenant *t = find_tenant(c, u->tenant);
        if (!t) continue;
        struct usage now = { u->requests_total, u->rejected_total, u->prompt_tokens_total,
                             u->cached_tokens_total, u->generated_tokens_total };
        struct usage_seen *seen = &r->usage[t - c->people.tenant];
        bool known = seen->tenant == t->serial && same_boot;
        struct usage zero = { 0 };
        if (known)
            add_usage(t, &now, &seen->last);
        else if (!first)
            add_usage(t, &now, &zero);
        *seen = (struct usage_seen){ t->serial, now };
    }
}

int tenants_flush(struct control *c, int64_t now_us)
{
    if (now_us - c->usage_us < TENANT_FLUSH_US) return 0;
    uint32_t written = 0;
    for (uint32_t i = 0; i < c->people.tenant_count; i++) {
        struct tenant *t = &c->people.tenant[i];
        if (!t->dirty) continue;
        if (written++ == FLUSH_BATCH) return 0; /* the rest with the next tick */
        struct err err = { 0 };
        int rc = store_tenant(c, t, &err);
        if (rc < 0) {
            control_count(c, CONTROL_M_STORE_FAILURES, NULL);
            log_event(LOG_WARN, "tenant_not_written", "tenant=%s error=%s", t->name,
                      err_text(&err, rc));
            return rc;
        }
        t->dirty = false;
    }
    c->usage_us = now_us;
    return 0;
}
