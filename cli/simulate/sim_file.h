/* sim_file.h - a fleet's file, as far as a simulation takes it, and how the fleet follows its demand.
 *
 * Layer: cli (simulator, base/io, controller/setup, schema of every role)
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/config/config.h"
#include "cli/simulate/sim_config.h"
#include "simulator/sim.h"

int sim_file_load(const char *path, struct config **ret, struct err *err);

struct service_section;

/* The service of that number, in the file's order; NULL when there is none, or no file. */
const struct service_section *sim_file_service(const struct config *file, uint32_t service);

/* From order to service of what the service's pool buys first, of the local offers; false: the file
 * does not say. */
bool sim_file_lead(const struct config *file, const struct service_section *service, uint32_t pool,
                   double *ret_s);

/* Takes policies and limits from the file; the policies live for ever. */
int sim_file_take(const char *path, struct sim_config *c, struct err *err);

/* A line that names what is taken of the file and what is not: policies and limits of engines only where
 * the fleet has any (not of ref8000), scaling only where it scales. */
struct sim_file_uses {
    bool engines, scaling;
    bool leads;                       /* of pools; else a flag says them */
    uint32_t pools[SIM_SERVICES_MAX]; /* that the fleet has for each service */
};

int sim_file_note(const char *path, struct sim_file_uses uses, struct buf *out, struct err *err);

/* Nothing when neither names a policy. Of --config the scaling of each service that the fleet has is taken
 * as the controller takes it, where the fleet may change or a flag names a policy; flags are stronger, and
 * count for every service. -EINVAL with a sentence. */
int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *control, struct err *err);

/* The options of scaling that are said and that this fleet has no use for, a bit each: an arm may have
 * one that is another's. What all arms have is a mistake, and the second makes its sentence. */
uint32_t sim_scaling_idle(const struct sim_options *o, const struct sim_config *config);
int sim_scaling_idle_say(uint32_t idle, struct err *err);
