/* doctor.h - the checks of `muster doctor`: what is wrong with a fleet or its machine, why, what next.
 *
 * Layer: cli (controller, engine, base/io)
 * Rules: (1) a check changes nothing and starts nothing
 *        (2) it says one finding or more; one that could not be made says `skipped` and why
 *        (3) a warning works today; what is failed does not work, or is not safe
 */
#pragma once
#include "base/core/json.h"
#include "base/io/config/config.h"
#include "cli/remote.h"

#include <sys/types.h>

enum check_status { CHECK_OK, CHECK_WARNING, CHECK_FAILED, CHECK_SKIPPED, CHECK_STATUS_COUNT };
extern const char *const check_status_names[CHECK_STATUS_COUNT];

struct doctor_options {
    struct remote_place place;
    struct str file;
    bool digest; /* read whole model files, however large */
    int output;
};

struct doctor {
    const struct doctor_options *o;
    const char *file;        /* of the configuration; NULL: none was found */
    struct config *config;   /* NULL: it does not load */
    struct str state;        /* state directory */
    struct fleet_file fleet; /* as `muster up` wrote it; zero: it did not */
    struct remote api;       /* where the controller is asked */
    bool has_api;
    bool answers;         /* it did, and took our credential */
    struct buf status;    /* its status, then */
    const char *name;     /* of the check that runs */
    struct json_writer w; /* of the findings */
    uint32_t count[CHECK_STATUS_COUNT];
};

/* Says a finding. `next` may be NULL. */
void doctor_say(struct doctor *d, enum check_status status, const char *next, const char *why, ...)
    __attribute__((format(printf, 4, 5)));

/* Returns true if the state directory is there. */
bool doctor_has_state(const struct doctor *d);

/* Writes "STATE/name". */
int doctor_path(const struct doctor *d, const char *name, char ret[PATH_MAX]);

/* check_files.c */
void check_configuration(struct doctor *d);
void check_state(struct doctor *d);
void check_secret(struct doctor *d);
void check_store(struct doctor *d);
void check_models(struct doctor *d);
void check_disk(struct doctor *d);

/* check_machine.c */
void check_ports(struct doctor *d);
void check_descriptors(struct doctor *d);
void check_processor(struct doctor *d);
void check_time(struct doctor *d);
void check_providers(struct doctor *d);

/* check_fleet.c */
void check_controller(struct doctor *d);
void check_rights(struct doctor *d);
void check_routers(struct doctor *d);
void check_instances(struct doctor *d);
void check_versions(struct doctor *d);
void check_clocks(struct doctor *d);
void check_offers(struct doctor *d);
