/* access.h - says who may ask: tenants, tokens of people and programs, and whether requests need API keys.
 *
 * Layer:   controller; tenants.c owns the state
 * Threads: the control's
 */
#pragma once
#include "controller/control.h"
#include "controller/observed.h"

/* Tenants. A key is shown once; only its SHA-256 is kept. */
#define TENANT_KEY_BYTES 48
struct tenant_limits {
    uint32_t requests_per_min, tokens_per_min, concurrency; /* 0: unlimited */
    double weight; /* its share of engines, relative to others'; 0: 1 */
};
int control_tenant_add(struct control *c, struct str name, const struct tenant_limits *limits,
                       int64_t date_us, char ret_key[TENANT_KEY_BYTES], struct err *err);
int control_tenant_remove(struct control *c, struct str name, struct err *err); /* -ENOENT */

/* Tokens of people and programs: an admin's allows all that the fleet's secret allows people, the other
 * reads. A token is shown once; only its SHA-256 is kept. */
#define CONTROL_TOKENS_MAX 100
#define TOKEN_TEXT_BYTES 64
enum token_role { TOKEN_READ, TOKEN_ADMIN, TOKEN_ROLE_COUNT };
extern const char *const token_role_names[]; /* read, admin */
int control_token_add(struct control *c, struct str name, enum token_role role, int64_t now_us,
                      char ret_token[TOKEN_TEXT_BYTES], struct err *err);
int control_token_remove(struct control *c, struct str name, struct err *err); /* -ENOENT */
/* Returns the token's name; NULL when there is none of this text. */
const char *control_token_find(const struct control *c, struct str text, enum token_role *ret);

/* Serves requests without a key again. Nothing else does, once there was a tenant. -EEXIST: there
 * are tenants; -EINVAL: the configuration requires keys. */
int control_keys_open(struct control *c, struct err *err);

struct tenant {
    char name[NAME_BYTES];
    char key_hash[65];
    char salt[33];
    struct tenant_limits limits;
    int64_t created_us;
    struct usage usage;
    struct cost mtokens; /* millions of tokens that were computed for it, by the bill's periods */
    struct tenant_share {
        char service[NAME_BYTES];
        struct cost mtokens;
    } share[TENANT_SERVICES_MAX]; /* of them, by the service that computed them */
    uint32_t share_count;
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

struct control;
struct router;
struct router_sync;
struct tenant_rules;

int tenants_restore(struct control *c, struct err *err);
void tenants_take_usage(struct control *c, struct router *r, const struct router_sync *s);
int tenants_flush(struct control *c, int64_t now_us);
int tenants_rules(const struct control *c, struct arena *arena, const struct tenant_rules **ret,
                  uint32_t *ret_count);
