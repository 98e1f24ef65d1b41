/* tenants.c - keeps tenants with their keys, limits and usage, the state of API keys, and access tokens.
 *
 * A key is KEY_RANDOM_BYTES random bytes, and the store holds its SHA-256. A slow hash would
 * protect short passwords; a random key needs none. Routers report usage as counters that begin
 * at zero when they restart, so usage is the sum of their differences, router by router. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "base/wire/sync.h"
#include "controller/control_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TENANT_FLUSH_US 30000000 /* usage counters are written so often */
#define KEY_RANDOM_BYTES 20      /* 160 bits */
#define SALT_RANDOM_BYTES 16
#define FLUSH_BATCH 16 /* records written by one tick: each is an fsync */
_Static_assert(sizeof "muster-" + 2 * KEY_RANDOM_BYTES <= TENANT_KEY_BYTES, "TENANT_KEY_BYTES");

/* ---- records ---- */

#define RECORD_VERSION 1 /* of these records only; for its rules see core/intent.c */

struct share_record {
    struct str service;
    struct cost mtokens;
};

static const struct field share_fields[] = {
    FIELD(struct share_record, service, FIELD_STR, .required = true, .min = 1,
          .max = NAME_BYTES - 1),
    FIELD_AS("day", struct share_record, mtokens.day, FIELD_I64, .max = 1e9),
    FIELD_AS("month", struct share_record, mtokens.month, FIELD_I64, .max = 1e9),
    FIELD_AS("in_day", struct share_record, mtokens.in_day, FIELD_F64, FIELD_POSITIVE),
    FIELD_AS("in_month", struct share_record, mtokens.in_month, FIELD_F64, FIELD_POSITIVE),
    FIELD_AS("total", struct share_record, mtokens.total, FIELD_F64, FIELD_POSITIVE),
};
static const struct field_set share_set = FIELD_SET(struct share_record, share_fields);

struct record {
    struct str name, key_hash, salt;
    uint32_t v, requests_per_min, tokens_per_min, concurrency;
    double weight;
    int64_t created_us;
    uint64_t requests, rejected, prompt_tokens, cached_tokens, generated_tokens;
    struct cost mtokens;
    const struct share_record *shares;
    uint32_t share_count;
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
    FIELD_AS("tokens_day", struct record, mtokens.day, FIELD_I64, .max = 1e9),
    FIELD_AS("tokens_month", struct record, mtokens.month, FIELD_I64, .max = 1e9),
    FIELD_AS("mtokens_in_day", struct record, mtokens.in_day, FIELD_F64, FIELD_POSITIVE),
    FIELD_AS("mtokens_in_month", struct record, mtokens.in_month, FIELD_F64, FIELD_POSITIVE),
    FIELD_AS("mtokens", struct record, mtokens.total, FIELD_F64, FIELD_POSITIVE),
    FIELD_ARRAY("services", struct record, shares, share_count, FIELD_LIST, TENANT_SERVICES_MAX,
                .of = &share_set),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

static int store_tenant(struct control *c, struct tenant *t, struct err *err)
{
    struct share_record shares[TENANT_SERVICES_MAX];
    for (uint32_t i = 0; i < t->share_count; i++)
        shares[i] = (struct share_record){ str_from(t->share[i].service), t->share[i].mtokens };
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
                        .generated_tokens = t->usage.generated_tokens,
                        .mtokens = t->mtokens,
                        .shares = shares,
                        .share_count = t->share_count };
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
    if (rc < 0) { /* its key opens nothing until the record can be read */
        control_set_aside(c, e->key, err_text(&why, rc));
        return 0;
    }
    struct tenant t = { .limits = { r.requests_per_min, r.tokens_per_min, r.concurrency, r.weight },
                        .created_us = r.created_us,
                        .usage = { r.requests, r.rejected, r.prompt_tokens, r.cached_tokens,
                                   r.generated_tokens },
                        .mtokens = r.mtokens,
                        .serial = ++c->people.tenant_serial,
                        .version = e->version };
    must(name_copy(t.name, sizeof t.name, r.name) == 0);
    must(name_copy(t.key_hash, sizeof t.key_hash, r.key_hash) == 0);
    must(name_copy(t.salt, sizeof t.salt, r.salt) == 0);
    for (; t.share_count < r.share_count; t.share_count++) {
        const struct share_record *s = &r.shares[t.share_count];
        t.share[t.share_count].mtokens = s->mtokens;
        must(name_copy(t.share[t.share_count].service, NAME_BYTES, s->service) == 0);
    }
    c->people.tenant[c->people.tenant_count++] = t;
    return 0;
}

/* The list's version starts at fleet time, so that it differs from every version before a
 * restart. */
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

/* A name is part of labels, keys and salts, so only plain ones are accepted. */
static bool name_is_plain(struct str name)
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

static int random_hex(char *ret, size_t bytes, struct err *err)
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
    if (!name_is_plain(name))
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
    int rc = random_hex(secret, KEY_RANDOM_BYTES, err);
    if (rc == 0) rc = random_hex(t.salt, SALT_RANDOM_BYTES, err);
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
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) { /* routers' counts move along */
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

static void add_millions(struct cost *c, double m, const struct bill_periods *p)
{
    *c = cost_in(c, p);
    c->in_day += m;
    c->in_month += m;
    c->total += m;
}

/* Returns the tenant's tokens of a service; the least of this month goes where there is no room. */
static struct cost *share_of(struct tenant *t, struct str service, const struct bill_periods *p)
{
    uint32_t least = 0;
    if (service.len >= NAME_BYTES) return NULL;
    for (uint32_t i = 0; i < t->share_count; i++) {
        if (str_eq(str_from(t->share[i].service), service)) return &t->share[i].mtokens;
        if (cost_in(&t->share[i].mtokens, p).in_month <
            cost_in(&t->share[least].mtokens, p).in_month)
            least = i;
    }
    if (t->share_count < TENANT_SERVICES_MAX) least = t->share_count++;
    t->share[least] = (struct tenant_share){ 0 };
    must(name_copy(t->share[least].service, NAME_BYTES, service) == 0);
    return &t->share[least].mtokens;
}

/* Adds what a router counted since `seen` by service, and keeps its counters there. `counts` false: they are only kept. */
static void take_work(struct tenant *t, const struct tenant_usage *u, struct usage_seen *seen,
                      bool known, bool counts, const struct bill_periods *p)
{
    struct usage_seen before = *seen;
    seen->work_count = 0;
    for (uint32_t i = 0; i < u->work_count && i < TENANT_SERVICES_MAX; i++) {
        const struct tenant_work *w = &u->work[i];
        uint64_t hash = hash64(w->service.data, w->service.len, 0), was = 0;
        for (uint32_t k = 0; k < before.work_count && known; k++)
            if (before.work[k].service == hash) was = before.work[k].tokens;
        uint64_t tokens = grown(w->computed_tokens_total, was);
        struct cost *to = counts && tokens > 0 ? share_of(t, w->service, p) : NULL;
        if (to) add_millions(to, (double)tokens / 1e6, p);
        seen->work[seen->work_count].service = hash;
        seen->work[seen->work_count++].tokens = w->computed_tokens_total;
    }
}

/* Adds computed tokens to the tenant's part of the bill. */
static void add_tokens(struct tenant *t, uint64_t prompt, uint64_t cached, uint64_t generated,
                       const struct bill_periods *p)
{
    double m = (double)(prompt - min_u64(cached, prompt) + generated) / 1e6;
    add_millions(&t->mtokens, m, p);
}

static void add_usage(struct tenant *t, const struct usage *now, const struct usage *before,
                      const struct bill_periods *p)
{
    struct usage *u = &t->usage;
    uint64_t sum = u->requests + u->rejected;
    u->requests += grown(now->requests, before->requests);
    u->rejected += grown(now->rejected, before->rejected);
    u->prompt_tokens += grown(now->prompt_tokens, before->prompt_tokens);
    u->cached_tokens += grown(now->cached_tokens, before->cached_tokens);
    u->generated_tokens += grown(now->generated_tokens, before->generated_tokens);
    add_tokens(t, grown(now->prompt_tokens, before->prompt_tokens),
               grown(now->cached_tokens, before->cached_tokens),
               grown(now->generated_tokens, before->generated_tokens), p);
    if (u->requests + u->rejected != sum) t->dirty = true;
}

/* Adds the difference of a router's counters to its tenants' usage. It is called before the router's boot
 * and sequence are updated. The first counters of a router that this process hears count as seen: at most
 * TENANT_FLUSH_US of usage is lost then, where the other choice would count the whole life of the router
 * twice. */
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
            add_usage(t, &now, &seen->last, &c->money.period);
        else if (!first)
            add_usage(t, &now, &zero, &c->money.period);
        take_work(t, u, seen, known, known || !first, &c->money.period);
        seen->tenant = t->serial;
        seen->last = now;
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

/* The state of API keys says whether requests need one. It is durable, and closed in doubt.
 *
 * The first tenant closes the service. From then on only a person opens it again: neither the removal of
 * the last tenant nor a lost store does. The state is in the store and in a file beside it, which
 * outlives a store that is moved away; either of them saying "closed" is enough. Closing is therefore
 * written before the tenant that it is for, and opening holds once both are written. */

#define KEYS_RECORD STR("keys")
#define KEYS_TEXT_BYTES_MAX 64

static const char *const texts[KEYS_STATE_COUNT] = {
    [KEYS_NEVER] = "",
    [KEYS_CLOSED] = "muster-keys 1 closed\n",
    [KEYS_OPENED] = "muster-keys 1 opened\n",
};

/* A record that cannot be read counts as closed. */
static enum keys_state state_of(int rc, struct str text, const char *where)
{
    if (rc == -ENOENT) return KEYS_NEVER;
    for (int s = KEYS_CLOSED; rc == 0 && s < KEYS_STATE_COUNT; s++)
        if (str_eq(text, str_from(texts[s]))) return (enum keys_state)s;
    log_event(LOG_ERROR, "keys_unreadable", "where=%s error=%s", where, err_text(NULL, rc));
    return KEYS_CLOSED;
}

static int put_record(struct control *c, enum keys_state s, struct err *err)
{
    return store_put_if(c->setup.store, KEYS_RECORD, str_from(texts[s]), STORE_ANY, NULL, err);
}

static int put_file(struct control *c, enum keys_state s, struct err *err)
{
    if (!c->setup.keys_file) return 0;
    return file_write_atomic(c->setup.keys_file, str_from(texts[s]), 0600, err);
}

/* Writes the state to both places, then to memory. */
static int put_state(struct control *c, enum keys_state s, struct err *err)
{
    int rc = put_file(c, s, err);
    if (rc == 0) rc = put_record(c, s, err);
    if (rc < 0) return rc;
    c->people.keys = s;
    c->people.tenants_version++; /* routers hear of it with the list */
    return 0;
}

/* Returns what the file beside a shared store is worth: another controller may have led since it was written,
 * so that the store's record comes first, and without one only "closed" is believed. */
static enum keys_state shared_file(enum keys_state stored, enum keys_state beside)
{
    if (stored != KEYS_NEVER) return stored;
    return beside == KEYS_NEVER ? KEYS_NEVER : KEYS_CLOSED;
}

int keys_restore(struct control *c, struct err *err)
{
    CLEANUP(buf_fini) struct buf record = { 0 }, file = { 0 };
    int rc = store_get(c->setup.store, KEYS_RECORD, &record, NULL, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    enum keys_state stored = state_of(rc, buf_view(&record), "store"), beside = KEYS_NEVER;
    if (c->setup.keys_file) {
        rc = file_read(c->setup.keys_file, KEYS_TEXT_BYTES_MAX, &file, err);
        beside = state_of(rc, buf_view(&file), c->setup.keys_file);
    }
    enum keys_state written = beside;
    if (store_is_shared(c->setup.store)) beside = shared_file(stored, beside);
    /* A store older than this record has tenants and no state; unreadable tenants count too. */
    bool said = stored != KEYS_NEVER || beside != KEYS_NEVER;
    bool closed = stored == KEYS_CLOSED || beside == KEYS_CLOSED || c->people.tenant_count > 0 ||
                  (!said && c->people.aside.tenants > 0);
    enum keys_state s = closed ? KEYS_CLOSED : stored == KEYS_OPENED ? stored : beside;
    c->people.keys = s;
    bool same = stored == s && (written == s || !c->setup.keys_file);
    return same ? 0 : put_state(c, s, err);
}

int keys_close(struct control *c, struct err *err)
{
    if (c->people.keys == KEYS_CLOSED) return 0;
    int rc = put_state(c, KEYS_CLOSED, err);
    if (rc == 0) log_event(LOG_INFO, "keys_closed", "why=tenant");
    return rc;
}

bool keys_needed(const struct control *c)
{
    return c->setup.keys_required || c->people.keys == KEYS_CLOSED;
}

int control_keys_open(struct control *c, struct err *err)
{
    if (c->setup.keys_required)
        return err_set(err, -EINVAL, "controller.require_keys is set: keys stay required");
    if (c->people.tenant_count > 0)
        return err_set(err, -EEXIST, "%u tenants have keys; revoke them first",
                       c->people.tenant_count);
    int rc = put_state(c, KEYS_OPENED, err);
    if (rc == 0) log_event(LOG_WARN, "keys_opened", "requests without a key are served");
    return rc;
}

/* Access tokens are the credentials of people and programs, admin or read-only, kept as digests.
 *
 * A token is 160 random bits, as a tenant's key is, and only its SHA-256 is kept. A lost token is revoked
 * by its name; the fleet's secret does not change. */

#define TOKEN_RANDOM_BYTES 20
#define TOKEN_RECORD_VERSION 1 /* of a stored token, apart from the wire's */

const char *const token_role_names[] = { "read", "admin", NULL };

struct token_record {
    uint32_t v;
    struct str name, hash;
    int role;
    int64_t created_us;
};

static const struct field token_fields[] = {
    FIELD(struct token_record, v, FIELD_U32, .required = true, .min = 1,
          .max = TOKEN_RECORD_VERSION),
    FIELD(struct token_record, name, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD(struct token_record, hash, FIELD_STR, .required = true, .min = SHA256_HEX,
          .max = SHA256_HEX),
    FIELD(struct token_record, role, FIELD_ENUM, .required = true, .names = token_role_names,
          .max = TOKEN_ROLE_COUNT),
    FIELD(struct token_record, created_us, FIELD_I64, .min = 0, .max = 9e15),
};
static const struct field_set token_set = FIELD_SET(struct token_record, token_fields);

static int store_token(struct control *c, struct token *t, struct err *err)
{
    struct token_record r = { .v = TOKEN_RECORD_VERSION,
                              .name = str_from(t->name),
                              .hash = str_from(t->hash),
                              .role = t->role,
                              .created_us = t->created_us };
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    buf_printf(&key, "token/%s", t->name);
    int rc = key.rc ? key.rc : fields_encode(&token_set, &r, &text);
    if (rc < 0) return err_set(err, rc, "no memory for token %s", t->name);
    return store_put_if(c->setup.store, buf_view(&key), buf_view(&text), STORE_ABSENT, NULL, err);
}

/* Reads one record. -ENOMEM; any other failure: it cannot be read. */
static int read_token(const struct store_entry *e, struct token *ret, struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 16384);
    struct token_record r = { 0 };
    int rc = fields_decode(&token_set, e->value, &arena, &r, "the stored token", err);
    if (rc < 0) return rc;
    struct token t = { .role = r.role, .created_us = r.created_us };
    must(name_copy(t.name, sizeof t.name, r.name) == 0);
    must(name_copy(t.hash, sizeof t.hash, r.hash) == 0);
    *ret = t;
    return 0;
}

struct token_restoring {
    struct control *c; /* NULL: unreadable records are left out */
    struct tokens *to;
    struct err *err;
};

static int restore_token(void *ctx, const struct store_entry *e)
{
    struct token_restoring *job = ctx;
    struct tokens *t = job->to;
    if (t->count == CONTROL_TOKENS_MAX)
        return err_set(job->err, -ENOSPC, "the store holds more than %d tokens",
                       CONTROL_TOKENS_MAX);
    struct err why = { 0 };
    int rc = read_token(e, &t->at[t->count], &why);
    if (rc == -ENOMEM) return err_set(job->err, rc, "%s", err_text(&why, rc));
    if (rc == 0)
        t->count++;
    else if (job->c) /* it opens nothing until it can be read */
        control_set_aside(job->c, e->key, err_text(&why, rc));
    return 0;
}

int tokens_restore(struct control *c, struct err *err)
{
    struct token_restoring job = { c, &c->people.tokens, err };
    return store_list(c->setup.store, STR("token/"), restore_token, &job, err);
}

int tokens_load(struct store *s, struct tokens *ret, struct err *err)
{
    struct tokens t = { .count = 0 };
    struct token_restoring job = { NULL, &t, err };
    int rc = store_list(s, STR("token/"), restore_token, &job, err);
    if (rc == 0) *ret = t;
    return rc;
}

static struct token *find_token(struct control *c, struct str name)
{
    for (uint32_t i = 0; i < c->people.tokens.count; i++)
        if (str_eq(str_from(c->people.tokens.at[i].name), name)) return &c->people.tokens.at[i];
    return NULL;
}

int control_token_add(struct control *c, struct str name, enum token_role role, int64_t now_us,
                      char ret_token[TOKEN_TEXT_BYTES], struct err *err)
{
    if (!name_is_plain(name))
        return err_set(err, -EINVAL, "a token's name has 1 to %d letters, digits, '-', '_' and '.'",
                       NAME_BYTES - 1);
    if (find_token(c, name))
        return err_set(err, -EEXIST, "token " STR_FMT " exists already", STR_ARG(name));
    if (c->people.tokens.count == CONTROL_TOKENS_MAX) {
        control_bound_reached(c, "tokens");
        return err_set(err, -ENOSPC, "%d tokens is the limit", CONTROL_TOKENS_MAX);
    }
    struct token t = { .role = role, .created_us = now_us };
    must(name_copy(t.name, sizeof t.name, name) == 0);
    char secret[2 * TOKEN_RANDOM_BYTES + 1], text[TOKEN_TEXT_BYTES];
    int rc = random_hex(secret, TOKEN_RANDOM_BYTES, err);
    if (rc < 0) return rc;
    int len = snprintf(text, sizeof text, "muster-%s-%s", token_role_names[role], secret);
    uint8_t digest[SHA256_BYTES];
    sha256(text, (size_t)len, digest);
    hex_from(digest, sizeof digest, t.hash);
    rc = store_token(c, &t, err);
    if (rc < 0) return rc;
    c->people.tokens.at[c->people.tokens.count++] = t;
    c->people.tenants_version++; /* routers hear of it with the list */
    memcpy(ret_token, text, sizeof text);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    log_event(LOG_INFO, "token_added", "name=%s role=%s", t.name, token_role_names[role]);
    return 0;
}

int control_token_remove(struct control *c, struct str name, struct err *err)
{
    struct token *t = find_token(c, name);
    if (!t) return err_set(err, -ENOENT, "there is no token '" STR_FMT "'", STR_ARG(name));
    CLEANUP(buf_fini) struct buf key = { 0 };
    buf_printf(&key, "token/%s", t->name);
    int rc = key.rc ? key.rc : store_delete_if(c->setup.store, buf_view(&key), STORE_ANY, err);
    if (rc < 0) return rc;
    log_event(LOG_INFO, "token_removed", "name=%s", t->name);
    *t = c->people.tokens.at[--c->people.tokens.count];
    c->people.tenants_version++;
    return 0;
}

const char *tokens_find(const struct tokens *t, struct str text, enum token_role *ret)
{
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    const char *found = NULL;
    if (text.len == 0) return NULL;
    sha256(text.data, text.len, digest);
    hex_from(digest, sizeof digest, hex);
    for (uint32_t i = 0; i < t->count; i++) {
        if (!equal_constant_time(hex, t->at[i].hash, SHA256_HEX)) continue;
        *ret = (enum token_role)t->at[i].role;
        found = t->at[i].name;
    }
    return found;
}

const char *control_token_find(const struct control *c, struct str text, enum token_role *ret)
{
    return c ? tokens_find(&c->people.tokens, text, ret) : NULL;
}

int tokens_rules(const struct control *c, struct arena *arena, const struct token_rules **ret,
                 uint32_t *ret_count)
{
    struct token_rules *rules = arena_array(arena, c->people.tokens.count, sizeof *rules);
    if (!rules) return -ENOMEM;
    for (uint32_t i = 0; i < c->people.tokens.count; i++)
        rules[i] = (struct token_rules){ .hash = str_from(c->people.tokens.at[i].hash),
                                         .admin = c->people.tokens.at[i].role == TOKEN_ADMIN };
    *ret = rules;
    *ret_count = c->people.tokens.count;
    return 0;
}
