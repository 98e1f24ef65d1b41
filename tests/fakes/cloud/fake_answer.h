/* fake_answer.h - has what fakes share: words of faults, headers, replies; and for JSON APIs with a bearer
 * token one request and the reply that is made to it.
 *
 * Layer: tests/fakes/cloud (base/core)
 */
#pragma once
#include "base/core/json.h"
#include "tests/fakes/cloud/fake_fleet.h"
#include "tests/fakes/cloud/fake_form.h"

struct fake_answer;

/* Words a fault as the API does. */
struct fake_words {
    enum fleet_fault fault; /* FLEET_FINE ends the table */
    int status;
    const char *code, *message;
};

/* NULL: there is no fault, or the API has no words for it. */
const struct fake_words *fake_words_of(const struct fake_words *words, const struct fleet_row *row);

bool fake_is_bearer(const struct web_ask *ask, const char *token);

/* Makes a reply, which then gets the API's own headers and fleet_break_reply. Frees the body. No retry_after_us: no
 * such header. */
void fake_fill(struct web_reply *ret, struct arena *arena, int status, struct buf *body,
               int64_t retry_after_us);
void fake_put_header(struct web_reply *ret, struct arena *arena, const char *name,
                     const char *value);

struct fake_api {
    const char *base;               /* of all paths */
    const struct fake_words *words; /* of faults; FLEET_AUTH and FLEET_INVALID are needed */
    bool retry_after;               /* a throttle says how long to wait */
    void (*put_error)(struct fake_answer *a, const char *code, const char *message);
    void (*route)(struct fake_answer *a);
};

struct fake_answer {
    const struct fake_api *api;
    struct fake_fleet *fleet;
    void *own; /* the fake's */
    const struct web_ask *ask;
    struct form_target at;
    struct arena *arena;
    int64_t now_us, date_us;
    const struct fleet_row *row; /* the fault that applies */
    int status;
    struct buf body;
    struct json_writer w; /* over the body */
    int64_t retry_after_us;
};

/* Begins the body of a success. */
struct json_writer *fake_reply(struct fake_answer *a, int status);
void fake_refuse(struct fake_answer *a, int status, const char *code, const char *message);

/* The request is one that the API would not have understood: counted, and refused as FLEET_INVALID is. */
void fake_refuse_form(struct fake_answer *a, const char *why);

/* Meets the script. True: the fault is one that the API has words for, and the reply is made. */
bool fake_meets(struct fake_answer *a, enum fleet_op op, const char *type, const char *zone);

/* A fault by which nothing is done, and nothing replied. */
bool fake_is_undone(const struct fake_answer *a);

/* Makes the machine of an order as the fault says. False: it was refused, or nothing is to be done. */
bool fake_make(struct fake_answer *a, const struct fleet_order *o, struct fleet_machine **ret);

const char *fake_text(struct fake_answer *a, const char *path); /* of the request's body; "" */
/* Reads the tags that oracles and fleet_world.h look for: the variables TAG_MUSTER_INTENT and the like of a JSON
 * object, as tags under their own names. Returns how many of FLEET_TAGS_MAX. */
uint32_t fake_tags_of_env(struct str env, struct fleet_tag *ret);

bool fake_is(const struct fake_answer *a, const char *method, const char *path);

int64_t fake_answer(const struct fake_api *api, struct fake_fleet *fleet, void *own,
                    const char *token, int64_t date_us, const struct web_ask *ask, int64_t now_us,
                    struct arena *arena, struct web_reply *ret);
