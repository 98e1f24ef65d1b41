/* aside.h - sets stored records aside that cannot be read: damaged, or of a newer release.
 *
 * Layer:   controller, private to it
 * Rules:   (1) such a record stops nothing but itself: it is set aside, counted, and reported in the
 *              log, in `status` and in /health (degraded)
 *          (2) it is never removed or overwritten: another release may understand it. Where the
 *              controller must go on writing under the same key, the record is copied to aside/KEY first
 *          (3) an intent that was set aside takes room; when its provider lists the instance, the
 *              instance serves and is billed as the tags say, but the controller does not end it
 */
#pragma once
#include "base/core/str.h"

#define ASIDE_MAX 2400 /* all intents and tenants there can be; the rest are counted */
#define ASIDE_KEY_BYTES 96
#define ASIDE_ERROR_BYTES 192

struct aside_record {
    char key[ASIDE_KEY_BYTES];
    char error[ASIDE_ERROR_BYTES];
};

struct aside {
    struct aside_record record[ASIDE_MAX];
    uint32_t count; /* of `record` */
    uint32_t total, intents, tenants;
};

struct control;
struct err;
struct json_writer;
struct listed;

void control_set_aside(struct control *c, struct str key, const char *error);

/* Returns true if the record kind/NAME (kind with its slash) was set aside. */
bool control_is_aside(const struct control *c, const char *kind, const char *name);

/* Returns how much is set aside now: records, and listed instances that cannot be read. */
uint32_t control_aside_count(const struct control *c);

/* Removes the record at index `at` of aside.record from the store, on a person's order, and forgets it. */
int control_remove_aside(struct control *c, uint32_t at, struct err *err);

/* Adds an instance whose intent was set aside, in memory only; rule (3). */
void control_shadow(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us);

/* Forgets shadows whose provider lists them no more. */
void control_drop_shadows(struct control *c);

/* Writes "unreadable": [{"record":..,"error":..}]. */
void control_put_aside(struct json_writer *w, const struct control *c);
