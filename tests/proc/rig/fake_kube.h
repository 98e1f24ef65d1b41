/* fake_kube.h - the members of the scripted API server, and what its files share.
 *
 * Layer:   tests, private to fake_kube.c, fake_kube_objects.c and fake_kube_watch.c
 * Threads: the loop's
 */
#pragma once
#include "base/io/http/http_server.h"
#include "tests/proc/rig/fake_kube_store.h"

#define FAKE_RULES_MAX 16
#define FAKE_JSON_TYPE STR("application/json")

enum fake_verb {
    FAKE_GET,
    FAKE_LIST,
    FAKE_WATCH,
    FAKE_CREATE,
    FAKE_REPLACE,
    FAKE_PATCH,
    FAKE_APPLY,
    FAKE_DELETE,
    FAKE_EVICT,
    FAKE_VERB_COUNT
};

struct fake_options {
    int64_t port, control_port, bookmark_ms, linger_ms;
    struct str certificate, key, token;
};

struct fake_rule {
    char verb[16], fault[16], resource[64], message[200];
    int64_t count, code, retry_after, ms;
};

struct fake {
    struct loop *loop;
    struct http_server *api;
    struct fake_options options;
    struct fake_store store;
    struct fake_rule rules[FAKE_RULES_MAX];
    uint32_t rule_count;
    char token[256]; /* empty: any */
    int64_t budget;  /* evictions left; negative: any number */
    uint64_t seen[FAKE_VERB_COUNT], refused;
    char agent[64];
    struct list watches; /* struct watch */
    struct list held;    /* struct slow: replies that come in pieces, or never */
};

/* Holds the reply to a request, before a fault changes it. */
struct fake_answer {
    int code;
    int64_t retry_after;
    struct buf body;
};

/* ---- fake_kube.c ---- */

void fake_copy(char *to, size_t bytes, struct str s); /* with a zero, cut to fit */
void fake_answer_fini(struct fake_answer *a);
/* Makes the answer a Status. */
void fake_say(struct fake_answer *a, int code, const char *reason, const char *message,
              const char *cause, int64_t retry_after);
void fake_answer_send(struct http_exchange *x, const struct fake_answer *a);

/* ---- fake_kube_objects.c ---- */

/* Carries a request out. */
void fake_perform(struct fake *f, const struct http_request *req, enum fake_verb verb,
                  const struct fake_key *key, const char *sub, struct fake_answer *a);

/* ---- fake_kube_watch.c ---- */

/* Begins a watch, with the faults of the rule (NULL: none). */
void fake_watch_begin(struct fake *f, struct http_exchange *x, const struct fake_key *in,
                      const struct fake_rule *rule);
void fake_tell_all(struct fake *f); /* the changes since each watch heard last */
void fake_watches_cut(struct fake *f);
