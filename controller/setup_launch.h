/* setup_launch.h - how an engine is started, and which rows of a service its command line names.
 *
 * Layer: controller
 */
#pragma once
#include "base/core/arena.h"
#include "controller/config.h"
#include "controller/control.h"

/* A policy that a service names: its kind, its key there, and where the name is. */
struct setup_row {
    const char *kind, *key;
    size_t offset; /* in struct service_section */
};
extern const struct setup_row setup_engine_rows[];
extern const size_t setup_engine_row_count;

static inline struct str setup_row_name(const struct service_section *s, const struct setup_row *r)
{
    return *(const struct str *)((const char *)s + r->offset);
}

/* How an instance of this pool is started. -E2BIG beyond LAUNCH_ARGS_MAX. */
int setup_launch(const struct controller_config *config, const struct service_section *s,
                 const struct pool_section *p, struct str program, struct arena *arena,
                 struct control_launch *ret, struct err *err);
