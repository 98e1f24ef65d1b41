/* web_keyless.h - drives create, remove and list of providers that have neither idempotency keys nor unique names:
 * what has the intent's tag in the listing is looked up before anything is made.
 *
 *     create:  listing, page by page ──none has the intent──► order ──► made
 *                        └── one has it ──► made
 *     remove:  by handle; without one, or where it is gone, listing ──► every machine that has the intent, one
 *              after the other
 *     list:    page by page
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 * Rules:   (1) a kind over this has create_is_keyed false: an order that got no reply is OFFER_TRANSIENT and is not
 *              repeated within the call. The next create comes when a listing was taken after the order
 *          (2) the look-up is no lock: an order that comes through later than the next look-up makes a duplicate,
 *              which the controller finds in the listing and removes (merge.h, rule 5)
 */
#pragma once
#include "controller/cloud/web/web_step.h"

/* When a step is made. */
struct web_moment {
    int64_t now_us, wall_us;
};

/* A reply's machine, with the fleet that its tags name. */
struct web_machine {
    struct listed listed;
    char fleet[NAME_BYTES];
    bool ended; /* it runs no more and cannot come back: a remove need not ask for it */
};

struct web_keyless {
    /* Asks for a page of the listing; `page` empty: the first. */
    void (*ask_page)(const struct web_provider *p, struct web_op *op, struct str page,
                     struct web_step *ret);
    const char *list;      /* path of the machines in its reply */
    const char *next_page; /* path of what ask_page wants for the next; NULL: there is one page */
    /* Finds it where no path leads there, in the arena; empty: that page was the last. NULL: next_page. */
    struct str (*find_next)(struct arena *arena, struct str body);

    /* Reads a machine. -EINVAL: it is none. Strangers' machines are read, too. */
    int (*read)(const struct web_moment *at, struct web_op *op, struct str item,
                struct web_machine *ret);

    /* Asks for the end of a machine. */
    void (*ask_remove)(const struct web_provider *p, struct web_op *op, struct str handle,
                       struct web_step *ret);

    /* True if the reply means that the machine ends; NULL: its status does. A 404 always does. Optional. */
    bool (*is_removed)(const struct web_reply *reply);

    /* Orders the machine. `reply` NULL: it begins, with stage 0 and an empty note, which are then its own. On success
     * it has set op->made.handle; the rest is filled here. */
    void (*order)(const struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                  const struct web_moment *at, struct web_step *ret);

    /* Ends the op with what a reply means that is no success. */
    void (*refuse)(const struct web_provider *p, const struct web_op *op,
                   const struct web_reply *reply, struct web_step *ret);

    /* A step of PRICES, for web_keyless_serve. Optional. */
    void (*prices)(const struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                   struct web_step *ret);
};

/* A step of CREATE, REMOVE or LIST. */
void web_keyless_step(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                      const struct web_reply *reply, const struct web_moment *at,
                      struct web_step *ret);

/* Any step of a kind whose login is one token (web_bearer_login). */
void web_keyless_serve(const struct web_keyless *k, struct web_provider *p, struct web_op *op,
                       const struct web_reply *reply, const struct web_moment *at,
                       struct web_step *ret);

/* op->note as a queue of words: -E2BIG if there is no room; false: it is empty. */
int web_note_push(struct web_op *op, struct str word);
bool web_note_pop(struct web_op *op, struct str *ret); /* in the arena */
