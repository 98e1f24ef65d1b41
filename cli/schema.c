/* schema.c - one line a section. */
#include "cli/schema.h"

#include "engine/config.h"
#include "router/config.h"

static const struct config_section *const sections[] = {
    &engine_section,
    &router_section,
};

const struct config_schema schema = { sections, COUNT_OF(sections) };
