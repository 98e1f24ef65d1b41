/* fake_gce_answer.h - has what answers of the fake of Google Compute Engine are made with: refusals, rights, objects.
 *
 * Layer: tests/fakes/cloud (base/core)
 */
#pragma once
#include "base/core/json.h"
#include "tests/fakes/cloud/fake_form.h"
#include "tests/fakes/cloud/fake_gce.h"

/* Holds the reply to one request. */
struct gce_answer {
    struct fake_gce *g;
    struct fake_fleet *fleet;
    const struct web_ask *ask;
    struct form_target at;
    struct arena *arena;
    int64_t now_us;
    int status;
    struct buf body;
    int64_t retry_after_us;
    const struct fleet_row *row; /* the fault that applies */
};

void fake_gce_refuse(struct gce_answer *a, int status, const char *reason, const char *message);

/* The same for a request that the API would not understand, which is counted. */
void fake_gce_refuse_form(struct gce_answer *a, const char *why);

/* Answers what the fault stands for in this API; false: it is none of those. */
bool fake_gce_refuse_fault(struct gce_answer *a);

/* Notes that a request needs a right, and refuses it without. */
bool fake_gce_lacks(struct gce_answer *a, enum fake_gce_permission p);

/* Puts a URL below the project. */
void fake_gce_put_url(struct json_writer *w, const struct gce_answer *a, const char *key,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Returns true if a mask of members names this one, at whatever level; an empty mask names all. */
bool fake_gce_asks_for(struct str fields, const char *member);

/* Puts an instance's members that the mask names. */
void fake_gce_put_instance(struct json_writer *w, const struct gce_answer *a,
                           const struct fleet_machine *m, struct str fields);
void fake_gce_put_operation(struct gce_answer *a, const struct fake_gce_operation *o);

/* Begins an operation; `zone` is a region of those that are in one. */
struct fake_gce_operation *fake_gce_operate(struct gce_answer *a, const char *type,
                                            const char *zone, const char *name);

/* Creates (fake_gce_make.c). */
struct fleet_machine *fake_gce_named(const struct gce_answer *a, const char *zone,
                                     const char *name);
void fake_gce_insert_instance(struct gce_answer *a, const char *zone);
void fake_gce_bulk_insert(struct gce_answer *a, const char *region);
