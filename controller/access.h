/* access.h - holds the state of access: tenants, tokens of people, and whether requests need API keys.
 *
 * Layer: controller, private to it; tenants.c owns it
 */
#pragma once
#include "controller/control.h"
#include "controller/observed.h"

struct control;

struct tenant {
    char name[NAME_BYTES];
    char key_hash[65];
    char salt[33];
    struct tenant_limits limits;
    int64_t created_us;
    struct usage usage;
    uint64_t serial;  /* never given twice in this process */
    uint64_t version; /* of its record */
    bool dirty;       /* usage not written yet */
};

struct token {
    char name[NAME_BYTES];
    char hash[65];
    int role; /* enum token_role */
    int64_t created_us;
};

enum keys_state {
    KEYS_NEVER,  /* no tenant was ever made, and no person has decided */
    KEYS_CLOSED, /* requests need a key */
    KEYS_OPENED, /* a person has opened the service again */
    KEYS_STATE_COUNT
};

struct tokens {
    struct token at[CONTROL_TOKENS_MAX];
    uint32_t count;
};

/* Tokens. */

/* Reads the tokens of a store; those that cannot be read are left out. */
int tokens_load(struct store *s, struct tokens *ret, struct err *err);
const char *tokens_find(const struct tokens *t, struct str text, enum token_role *ret);
int tokens_restore(struct control *c, struct err *err);
int tokens_rules(const struct control *c, struct arena *arena, const struct token_rules **ret,
                 uint32_t *ret_count);

/* API keys. */
int keys_restore(struct control *c, struct err *err); /* after the tenants */
int keys_close(struct control *c, struct err *err);   /* durable on return */
bool keys_needed(const struct control *c);
