/* sim_file.h - takes from a fleet's file what a simulation uses, scaling included.
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

/* Returns the service of that number, in the file's order; NULL when there is none, or no file. */
const struct service_section *sim_file_service(const struct config *file, uint32_t service);

/* Writes the lead of the service's pool: seconds from order to service of its first offer, if that is local;
 * false if the file does not say. */
bool sim_file_lead(const struct config *file, const struct service_section *service, uint32_t pool,
                   double *ret_s);

/* Takes policies and limits from the file; the policies are static. */
int sim_file_take(const char *path, struct sim_config *c, struct err *err);

/* The parts of the file that a simulation uses: policies and limits of engines only where the fleet has
 * engines (ref8000 has none), scaling only where it scales. */
struct sim_file_uses {
    bool engines, scaling;
    bool leads;                       /* of pools; false: a flag gives them */
    uint32_t pools[SIM_SERVICES_MAX]; /* that the fleet has for each service */
};

/* Appends a line that names the settings taken from the file and those left out. */
int sim_file_note(const char *path, struct sim_file_uses uses, struct buf *out, struct err *err);

/* Sets up scaling; does nothing when neither flags nor the file name a policy. The scaling of each of the
 * file's services that the fleet has is taken as the controller takes it, where the fleet may change or a flag
 * names a policy; flags beat the file and hold for every service. -EINVAL with a sentence. */
int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *control, struct err *err);

/* sim_scaling_idle returns the given options of scaling that have no effect on this fleet, a bit each. One
 * that has an effect in another arm is allowed; one that has none in any arm is an error, and
 * sim_scaling_idle_say makes its sentence. */
uint32_t sim_scaling_idle(const struct sim_options *o, const struct sim_config *config);
int sim_scaling_idle_say(uint32_t idle, struct err *err);
