/* tenants.c - keeps snapshots of API keys, token buckets, usage counters and the file of keys. */
#include "router/tenants.h"

#include "base/core/bits.h"
#include "base/core/list.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <stdatomic.h>
#include <stdlib.h>

#define FORGET_AT_ONCE 256

struct tenant_keys {
    atomic_uint refs;
    struct map by_hash; /* SHA-256 -> struct tenant_name */
    struct map tokens;  /* SHA-256 -> bool: an admin's */
};

static void keys_free(struct tenant_keys *k)
{
    map_fini(&k->by_hash);
    map_fini(&k->tokens);
    free(k);
}

static bool copy_name(char ret[TENANT_NAME_MAX], struct str s)
{
    if (s.len >= TENANT_NAME_MAX) return false;
    memset(ret, 0, TENANT_NAME_MAX);
    if (s.len > 0) memcpy(ret, s.data, s.len);
    return true;
}

static int add_tenant(struct tenant_keys *k, const struct tenant_rules *rules, struct err *err)
{
    for (uint32_t i = 0; i < rules->key_hash_count; i++) {
        uint8_t hash[SHA256_BYTES];
        if (hex_to(rules->key_hashes[i], hash, sizeof hash) < 0) {
            return err_set(err, -EINVAL, "tenant " STR_FMT ": a key hash is not SHA-256",
                           STR_ARG(rules->tenant));
        }
        struct tenant_name *name = map_put(&k->by_hash, hash, NULL);
        if (!name) return err_set(err, -ENOMEM, "tenants: no memory");
        if (!copy_name(name->name, rules->tenant) || !copy_name(name->salt, rules->salt)) {
            return err_set(err, -EINVAL, "tenant " STR_FMT ": a name is too long",
                           STR_ARG(rules->tenant));
        }
        name->limited = rules->requests_per_min || rules->tokens_per_min || rules->concurrency;
    }
    return 0;
}

static int add_token(struct tenant_keys *k, const struct token_rules *rules, struct err *err)
{
    uint8_t hash[SHA256_BYTES];
    if (hex_to(rules->hash, hash, sizeof hash) < 0)
        return err_set(err, -EINVAL, "a token's hash is not SHA-256");
    bool *admin = map_put(&k->tokens, hash, NULL);
    if (!admin) return err_set(err, -ENOMEM, "tokens: no memory");
    *admin = rules->admin;
    return 0;
}

int tenant_keys_new(const struct router_rules *rules, struct tenant_keys **ret, struct err *err)
{
    struct tenant_keys *k = calloc(1, sizeof *k);
    if (!k) return err_set(err, -ENOMEM, "tenants: no memory");
    atomic_init(&k->refs, 1);
    map_init(&k->by_hash, SHA256_BYTES, sizeof(struct tenant_name),
             (size_t)SYNC_TENANTS_MAX * SYNC_KEYS_MAX, MAP_FOREIGN);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < rules->tenant_count; i++) {
        rc = add_tenant(k, &rules->tenants[i], err);
    }
    map_init(&k->tokens, SHA256_BYTES, sizeof(bool), SYNC_TOKENS_MAX, MAP_FOREIGN);
    for (uint32_t i = 0; rc == 0 && i < rules->token_count; i++)
        rc = add_token(k, &rules->tokens[i], err);
    if (rc < 0) {
        keys_free(k);
        return rc;
    }
    *ret = k;
    return 0;
}

struct tenant_keys *tenant_keys_ref(struct tenant_keys *k)
{
    if (k) atomic_fetch_add(&k->refs, 1);
    return k;
}

void tenant_keys_unref(struct tenant_keys *k)
{
    if (k && atomic_fetch_sub(&k->refs, 1) == 1) keys_free(k);
}

const struct tenant_name *tenant_keys_find(const struct tenant_keys *k, struct str api_key)
{
    if (!k || api_key.len == 0) return NULL;
    /* Looked up by hash: the time it takes says nothing about the key. */
    uint8_t hash[SHA256_BYTES];
    sha256(api_key.data, api_key.len, hash);
    return map_get(&k->by_hash, hash);
}

bool tenant_keys_token(const struct tenant_keys *k, struct str token, bool *ret_admin)
{
    if (!k || token.len == 0) return false;
    uint8_t hash[SHA256_BYTES];
    sha256(token.data, token.len, hash);
    const bool *admin = map_get(&k->tokens, hash);
    if (admin) *ret_admin = *admin;
    return admin != NULL;
}

struct tenants {
    struct map by_name; /* TENANT_NAME_MAX bytes -> struct tenant * */
    struct tenant anonymous;
};

int tenants_new(struct tenants **ret, struct err *err)
{
    struct tenants *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "tenants: no memory");
    map_init(&t->by_name, TENANT_NAME_MAX, sizeof(struct tenant *), SYNC_TENANTS_MAX, MAP_FOREIGN);
    *ret = t;
    return 0;
}

void tenants_free(struct tenants *t)
{
    if (!t) return;
    size_t cursor = 0;
    const void *key;
    void *value;
    while (map_next(&t->by_name, &cursor, &key, &value))
        free(*(struct tenant **)value);
    map_fini(&t->by_name);
    free(t);
}

static struct tenant *find_or_make(struct tenants *t, struct str name)
{
    char key[TENANT_NAME_MAX];
    if (!copy_name(key, name)) return NULL;
    bool is_new;
    struct tenant **place = map_put(&t->by_name, key, &is_new);
    if (!place) return NULL;
    if (is_new) {
        *place = calloc(1, sizeof **place);
        if (!*place) {
            map_remove(&t->by_name, key);
            return NULL;
        }
        copy_name((*place)->id.name, name);
    }
    return *place;
}

static void mark_named(struct tenants *t, const struct router_rules *rules)
{
    size_t cursor = 0;
    struct tenant *one;
    while ((one = tenants_next(t, &cursor)))
        one->named = false;
    for (uint32_t i = 0; i < rules->tenant_count; i++) {
        char key[TENANT_NAME_MAX];
        struct tenant **place =
            copy_name(key, rules->tenants[i].tenant) ? map_get(&t->by_name, key) : NULL;
        if (place) (*place)->named = true;
    }
}

/* Makes room at the bound: frees tenants that are named no more and have nothing in flight. */
static void forget_some(struct tenants *t)
{
    struct tenant *gone[FORGET_AT_ONCE];
    uint32_t count = 0;
    size_t cursor = 0;
    struct tenant *one;
    while (count < FORGET_AT_ONCE && (one = tenants_next(t, &cursor))) {
        if (one->in_flight == 0 && !one->named) gone[count++] = one;
    }
    for (uint32_t i = 0; i < count; i++) {
        map_remove(&t->by_name, gone[i]->id.name);
        free(gone[i]);
    }
}

int tenants_update(struct tenants *t, const struct router_rules *rules)
{
    mark_named(t, rules);
    for (uint32_t i = 0; i < rules->tenant_count; i++) {
        const struct tenant_rules *r = &rules->tenants[i];
        struct tenant *one = find_or_make(t, r->tenant);
        if (!one) {
            forget_some(t);
            one = find_or_make(t, r->tenant);
        }
        if (!one) return -ENOMEM;
        if (one->requests_per_min != r->requests_per_min) {
            one->requests_left = r->requests_per_min;
        }
        if (one->tokens_per_min != r->tokens_per_min) one->tokens_left = r->tokens_per_min;
        one->named = true;
        one->requests_per_min = r->requests_per_min;
        one->tokens_per_min = r->tokens_per_min;
        one->concurrency = r->concurrency;
        one->weight = r->weight;
    }
    return 0;
}

struct tenant *tenants_find(struct tenants *t, const char *name)
{
    char key[TENANT_NAME_MAX];
    if (name[0] == '\0' || !copy_name(key, str_from(name))) return &t->anonymous;
    struct tenant **place = map_get(&t->by_name, key);
    return place ? *place : &t->anonymous;
}

uint32_t tenants_count(const struct tenants *t)
{
    return (uint32_t)t->by_name.count;
}

struct tenant *tenants_next(struct tenants *t, size_t *cursor)
{
    const void *key;
    void *value;
    if (!map_next(&t->by_name, cursor, &key, &value)) return NULL;
    return *(struct tenant **)value;
}

/* Adds the requests and tokens that the tenant has earned since the last refill. */
static void refill(struct tenant *t, int64_t now_us)
{
    double minutes = (double)(now_us - t->filled_us) / 60e6;
    t->filled_us = now_us;
    t->requests_left += minutes * t->requests_per_min;
    t->tokens_left += minutes * t->tokens_per_min;
    if (t->requests_left > t->requests_per_min) t->requests_left = t->requests_per_min;
    if (t->tokens_left > t->tokens_per_min) t->tokens_left = t->tokens_per_min;
}

/* Returns the seconds until so many tokens are earned. A prompt above a whole minute's allowance passes
 * when the bucket is full; it could never pass otherwise. */
static double tokens_wait_s(const struct tenant *t, uint32_t prompt_tokens)
{
    double tokens = prompt_tokens < t->tokens_per_min ? prompt_tokens : t->tokens_per_min;
    if (t->tokens_per_min == 0 || t->tokens_left >= tokens) return 0;
    return (tokens - t->tokens_left) * 60 / t->tokens_per_min;
}

static bool refuse(struct tenant *t, double wait_s, double *ret_wait_s)
{
    t->rejected_total++;
    *ret_wait_s = wait_s;
    return false;
}

bool tenant_enter(struct tenant *t, int64_t now_us, double *ret_wait_s)
{
    refill(t, now_us);
    double wait_s = tokens_wait_s(t, 0);
    if (wait_s == 0 && t->concurrency > 0 && t->in_flight >= t->concurrency) wait_s = 1;
    if (t->requests_per_min > 0 && t->requests_left < 1)
        wait_s = (1 - t->requests_left) * 60 / t->requests_per_min;
    if (wait_s > 0) return refuse(t, wait_s, ret_wait_s);
    t->requests_left -= 1;
    t->in_flight++;
    t->requests_total++;
    return true;
}

bool tenant_charge(struct tenant *t, uint32_t prompt_tokens, int64_t now_us, double *ret_wait_s)
{
    refill(t, now_us);
    double wait_s = tokens_wait_s(t, prompt_tokens);
    if (wait_s > 0) {
        t->requests_left += 1;
        t->in_flight--;
        t->requests_total--;
        return refuse(t, wait_s, ret_wait_s);
    }
    t->tokens_left -= prompt_tokens;
    return true;
}

bool tenant_admit(struct tenant *t, uint32_t prompt_tokens, int64_t now_us, double *ret_wait_s)
{
    refill(t, now_us);
    double wait_s = tokens_wait_s(t, prompt_tokens);
    if (wait_s > 0) return refuse(t, wait_s, ret_wait_s);
    return tenant_enter(t, now_us, ret_wait_s) &&
           tenant_charge(t, prompt_tokens, now_us, ret_wait_s);
}

/* Counts what a service has computed. Beyond TENANT_SERVICES_MAX only the tenant's sums have it. */
static void count_part(struct tenant *t, uint64_t service, const struct usage *usage)
{
    uint64_t cached = min_u64(usage->cached_tokens, usage->prompt_tokens);
    uint64_t computed = usage->prompt_tokens - cached + usage->generated_tokens;
    uint32_t i = 0;
    if (computed == 0) return;
    while (i < t->part_count && t->part[i].service != service)
        i++;
    if (i == TENANT_SERVICES_MAX) return;
    if (i == t->part_count) t->part[t->part_count++] = (struct tenant_part){ .service = service };
    t->part[i].computed_tokens_total += computed;
}

void tenant_end(struct tenant *t, uint64_t service, const struct usage *usage)
{
    count_part(t, service, usage);
    t->in_flight--;
    t->tokens_left -= usage->generated_tokens;
    t->prompt_tokens_total += usage->prompt_tokens;
    t->cached_tokens_total += usage->cached_tokens;
    t->generated_tokens_total += usage->generated_tokens;
}

/* ---- leave for work of the router's own ---- */

void entry_ask(struct entry *e, struct mailbox *to, enum entry_ask what)
{
    mailbox_lock(to);
    e->ask |= what;
    mailbox_send(to, &e->ask_item);
    mailbox_unlock(to);
}

uint32_t entry_told(struct mailbox *home, struct mailbox_item *item, double *ret_wait_s)
{
    struct entry *e = CONTAINER_OF(item, struct entry, tell_item);
    mailbox_open(home, item);
    uint32_t tell = e->tell;
    e->tell = 0;
    *ret_wait_s = e->wait_s;
    mailbox_unlock(home);
    return tell;
}

static void tell(struct entry *e, enum entry_tell what, double wait_s)
{
    struct mailbox *home = e->home; /* once told, the entry may be gone */
    mailbox_lock(home);
    e->tell |= what;
    e->wait_s = wait_s;
    mailbox_send(home, &e->tell_item);
    mailbox_unlock(home);
}

bool entry_decide(struct mailbox *from, struct mailbox_item *item, struct tenants *tenants,
                  int64_t now_us)
{
    struct entry *e = CONTAINER_OF(item, struct entry, ask_item);
    mailbox_open(from, item);
    uint32_t ask = e->ask;
    e->ask = 0;
    mailbox_unlock(from);
    if (ask & ENTRY_END) {
        const struct usage none = { 0 };
        tenant_end(e->tenant, 0, &none);
        tell(e, ENTRY_OVER, 0);
        return true;
    }
    double wait_s = 0;
    e->tenant = tenants_find(tenants, e->tenant_name);
    bool may = tenant_enter(e->tenant, now_us, &wait_s);
    tell(e, may ? ENTRY_MAY : ENTRY_REFUSED, wait_s);
    return may;
}

/* ---- the file of API keys ----
 *
 * Its first line says whether keys are needed; the tenants follow as the controller sends them. The line
 * can be read alone: when a later version writes the tenants in another way, an older router still knows
 * that keys are needed, and refuses all of them until the controller answers.
 */

#define FILE_NAME "router.keys"
#define FILE_BYTES_MAX (SYNC_BYTES_MAX + 64)

static const struct str line_required = { "muster-router-keys 1 required\n", 30 };
static const struct str line_none = { "muster-router-keys 1 none\n", 26 };

int keys_init(struct keys *k, struct str file, struct str secret_file, bool always,
              bool has_controller, struct err *err)
{
    *k = (struct keys){ .always = always };
    k->need = always ? KEYS_REQUIRED : has_controller ? KEYS_UNKNOWN : KEYS_NONE;
    buf_init(&k->saved, FILE_BYTES_MAX);
    size_t folder = secret_file.len;
    while (folder > 0 && secret_file.data[folder - 1] != '/')
        folder--;
    if (file.len > 0) {
        buf_str(&k->path, file);
    } else if (secret_file.len > 0) {
        buf_append(&k->path, secret_file.data, folder);
        buf_text(&k->path, FILE_NAME);
    }
    if (k->path.len > 0) buf_byte(&k->path, '\0');
    return k->path.rc < 0 ? err_set(err, k->path.rc, "router.keys_file: no memory") : 0;
}

void keys_fini(struct keys *k)
{
    buf_fini(&k->path);
    buf_fini(&k->saved);
}

int keys_recall(struct keys *k, struct arena *arena, struct router_rules *ret, struct err *err)
{
    if (k->path.len == 0) return -ENOENT;
    int rc = file_read(k->path.data, FILE_BYTES_MAX, &k->saved, err);
    if (rc == -ENOENT) return rc;
    struct str text = buf_view(&k->saved);
    if (rc == 0 && str_starts(text, line_none)) return -ENOENT;
    k->need = KEYS_REQUIRED;
    if (rc == 0 && !str_starts(text, line_required))
        rc = err_set(err, -EINVAL, "%s: not a file of keys that this version knows", k->path.data);
    if (rc < 0) return rc;
    text = str_of(text.data + line_required.len, text.len - line_required.len);
    return router_rules_decode(text, arena, ret, err);
}

void keys_heed(struct keys *k, const struct router_rules *rules)
{
    bool stays = k->need == KEYS_REQUIRED && !rules->keys_opened;
    k->need = k->always || rules->keys_required || stays ? KEYS_REQUIRED : KEYS_NONE;
}

int keys_remember(struct keys *k, const struct router_rules *rules, struct err *err)
{
    if (k->path.len == 0) return 0;
    /* The list's version is left out: after a restart the whole list is asked for, and an unchanged
     * list leaves the file as it is. */
    const struct router_rules kept = { .keys_required = true,
                                       .has_tenants = true,
                                       .tenants = rules->tenants,
                                       .tenant_count = rules->tenant_count,
                                       .tokens = rules->tokens,
                                       .token_count = rules->token_count,
                                       .again_ms = 1 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_init(&text, FILE_BYTES_MAX);
    buf_str(&text, k->need == KEYS_REQUIRED ? line_required : line_none);
    int rc = k->need == KEYS_REQUIRED ? router_rules_encode(&kept, &text) : text.rc;
    if (rc < 0) return err_set(err, rc, "no memory for %s", k->path.data);
    if (str_eq(buf_view(&text), buf_view(&k->saved))) return 0;
    rc = file_write_atomic(k->path.data, buf_view(&text), 0600, err);
    if (rc < 0) return rc;
    buf_clear(&k->saved);
    return buf_str(&k->saved, buf_view(&text));
}
