/* keys.h - knows if requests need an API key, over a restart of the router too.
 *
 * Layer:   router (base/io, base/wire)
 * Threads: the decision thread's; snapshots carry `need` to the byte loops
 * Rules:   (1) closed until the controller has spoken: without its word nobody is served without a
 *              key, unless no controller is configured
 *          (2) once keys were needed they stay needed, whatever becomes of the controller and its
 *              store, until a controller says that a person has opened the service (keys_opened)
 *          (3) the file holds no key, only digests, and is as private as the secret
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/wire/sync.h"

enum keys_need {
    KEYS_UNKNOWN, /* the controller has not spoken yet */
    KEYS_NONE,
    KEYS_REQUIRED,
};

struct keys {
    enum keys_need need;
    bool always;      /* the configuration requires them */
    struct buf path;  /* of the file, with NUL; empty: nothing is remembered */
    struct buf saved; /* what the file holds */
};

/* `file` empty: router.keys beside `secret_file`, where there is one. -ENAMETOOLONG. */
int keys_init(struct keys *k, struct str file, struct str secret_file, bool always,
              bool has_controller, struct err *err);
void keys_fini(struct keys *k);

/* What was remembered: -ENOENT: nothing. Otherwise keys are needed from now on where they were, and
 * where the file cannot be read or understood; 0: *ret (in `arena`) has the tenants too. */
int keys_recall(struct keys *k, struct arena *arena, struct router_rules *ret, struct err *err);

/* The controller's word. */
void keys_heed(struct keys *k, const struct router_rules *rules);

/* Writes down what holds now with the tenants of `rules`, when it is not what the file says. */
int keys_remember(struct keys *k, const struct router_rules *rules, struct err *err);
