/* schema.c - one line a section. */
#include "cli/schema.h"

#include "agent/config.h"
#include "controller/config.h"
#include "engine/config.h"
#include "router/config.h"

static const struct config_section *const sections[] = {
    &controller_section, &services_section, &local_section,
    &router_section,     &engine_section,   &agent_section,
};

const struct config_schema schema = { sections, COUNT_OF(sections), config_absent_policies };
