/* tokens.c - credentials of people and programs: admin and read-only tokens, kept as digests.
 *
 * A token is 160 random bits, as a tenant's key is, and its SHA-256 is all that is kept. Who loses one
 * revokes it by name; the fleet's secret stays what it is. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "controller/control_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TOKEN_RANDOM_BYTES 20
#define RECORD_VERSION 1 /* of a stored token, whatever the wire's is */

const char *const token_role_names[] = { "read", "admin", NULL };

struct record {
    uint32_t v;
    struct str name, hash;
    int role;
    int64_t created_us;
};

static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = RECORD_VERSION),
    FIELD(struct record, name, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES - 1),
    FIELD(struct record, hash, FIELD_STR, .required = true, .min = SHA256_HEX, .max = SHA256_HEX),
    FIELD(struct record, role, FIELD_ENUM, .required = true, .names = token_role_names,
          .max = TOKEN_ROLE_COUNT),
    FIELD(struct record, created_us, FIELD_I64, .min = 0, .max = 9e15),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

static int store_token(struct control *c, struct token *t, struct err *err)
{
    struct record r = { .v = RECORD_VERSION,
                        .name = str_from(t->name),
                        .hash = str_from(t->hash),
                        .role = t->role,
                        .created_us = t->created_us };
    CLEANUP(buf_fini) struct buf key = { 0 }, text = { 0 };
    buf_printf(&key, "token/%s", t->name);
    int rc = key.rc ? key.rc : fields_encode(&record_set, &r, &text);
    if (rc < 0) return err_set(err, rc, "no memory for token %s", t->name);
    return store_put_if(c->setup.store, buf_view(&key), buf_view(&text), STORE_ABSENT, NULL, err);
}

struct restoring {
    struct control *c;
    struct err *err;
};

static int restore_token(void *ctx, const struct store_entry *e)
{
    struct restoring *job = ctx;
    struct control *c = job->c;
    if (c->people.token_count == CONTROL_TOKENS_MAX)
        return err_set(job->err, -ENOSPC, "the store holds more than %d tokens",
                       CONTROL_TOKENS_MAX);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 16384);
    struct record r = { 0 };
    struct err why = { 0 };
    int rc = fields_decode(&record_set, e->value, &arena, &r, "the stored token", &why);
    if (rc == -ENOMEM) return err_set(job->err, rc, "%s", err_text(&why, rc));
    if (rc < 0) { /* it opens nothing until somebody can read it */
        control_set_aside(c, e->key, err_text(&why, rc));
        return 0;
    }
    struct token *t = &c->people.token[c->people.token_count++];
    *t = (struct token){ .role = r.role, .created_us = r.created_us };
    must(name_copy(t->name, sizeof t->name, r.name) == 0);
    must(name_copy(t->hash, sizeof t->hash, r.hash) == 0);
    return 0;
}

int tokens_restore(struct control *c, struct err *err)
{
    struct restoring job = { c, err };
    return store_list(c->setup.store, STR("token/"), restore_token, &job, err);
}

static struct token *find_token(struct control *c, struct str name)
{
    for (uint32_t i = 0; i < c->people.token_count; i++)
        if (str_eq(str_from(c->people.token[i].name), name)) return &c->people.token[i];
    return NULL;
}

int control_token_add(struct control *c, struct str name, enum token_role role, int64_t now_us,
                      char ret_token[TOKEN_TEXT_BYTES], struct err *err)
{
    if (!tenant_name_is_plain(name))
        return err_set(err, -EINVAL, "a token's name has 1 to %d letters, digits, '-', '_' and '.'",
                       NAME_BYTES - 1);
    if (find_token(c, name))
        return err_set(err, -EEXIST, "token " STR_FMT " exists already", STR_ARG(name));
    if (c->people.token_count == CONTROL_TOKENS_MAX) {
        control_bound_reached(c, "tokens");
        return err_set(err, -ENOSPC, "%d tokens is the limit", CONTROL_TOKENS_MAX);
    }
    struct token t = { .role = role, .created_us = now_us };
    must(name_copy(t.name, sizeof t.name, name) == 0);
    char secret[2 * TOKEN_RANDOM_BYTES + 1], text[TOKEN_TEXT_BYTES];
    int rc = tenant_random_hex(secret, TOKEN_RANDOM_BYTES, err);
    if (rc < 0) return rc;
    int len = snprintf(text, sizeof text, "muster-%s-%s", token_role_names[role], secret);
    uint8_t digest[SHA256_BYTES];
    sha256(text, (size_t)len, digest);
    hex_from(digest, sizeof digest, t.hash);
    rc = store_token(c, &t, err);
    if (rc < 0) return rc;
    c->people.token[c->people.token_count++] = t;
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
    *t = c->people.token[--c->people.token_count];
    c->people.tenants_version++;
    return 0;
}

bool control_token_find(const struct control *c, struct str text, enum token_role *ret)
{
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    bool found = false;
    if (!c || text.len == 0) return false;
    sha256(text.data, text.len, digest);
    hex_from(digest, sizeof digest, hex);
    for (uint32_t i = 0; i < c->people.token_count; i++) {
        if (!equal_constant_time(hex, c->people.token[i].hash, SHA256_HEX)) continue;
        *ret = (enum token_role)c->people.token[i].role;
        found = true;
    }
    return found;
}

int tokens_rules(const struct control *c, struct arena *arena, const struct token_rules **ret,
                 uint32_t *ret_count)
{
    struct token_rules *rules = arena_array(arena, c->people.token_count, sizeof *rules);
    if (!rules) return -ENOMEM;
    for (uint32_t i = 0; i < c->people.token_count; i++)
        rules[i] = (struct token_rules){ .hash = str_from(c->people.token[i].hash),
                                         .admin = c->people.token[i].role == TOKEN_ADMIN };
    *ret = rules;
    *ret_count = c->people.token_count;
    return 0;
}
