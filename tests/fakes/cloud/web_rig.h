/* web_rig.h - a cloud of the `clouds` section over a fake of its provider, in virtual time.
 *
 * Layer: tests/fakes/cloud (controller)
 */
#pragma once
#include "base/io/config/config.h"
#include "tests/fakes/cloud/fake_fleet.h"
#include "tests/fakes/cloud/web_drive.h"

#define RIG_SECOND ((int64_t)1000000)
#define RIG_START (1000000 * RIG_SECOND)               /* fleet time at the beginning */
#define RIG_DATE_US ((int64_t)1790000000 * RIG_SECOND) /* the date less fleet time */

struct web_rig {
    struct config *config;
    struct arena arena;
    struct web_settings *settings; /* of all clouds of the text */
    uint32_t cloud_count;
    const char *const *environ;
    /* What every secret file holds, but that at token_path; NULL: there is none. */
    const char *secret;
    const char *token_path, *token; /* a file of its own; token_path NULL: there is none */
    struct web_host host;
    struct web_drive drive;   /* of the first cloud */
    struct cloud_event event; /* of the last call */
    struct listed room[CLOUD_LIST_MAX];
    int64_t now_us;
};

/* Reads the section from a text; fails the test where it has a problem. */
void web_rig_settings(struct web_rig *r, const char *yaml);

/* The problem of a section that must not be taken. Lives until the next call. */
const char *web_rig_problem(const char *yaml);

/* Opens the first cloud over a fake. `environ` may be NULL. */
void web_rig_open(struct web_rig *r, const char *yaml, const struct cloud_fake *fake, void *ctx,
                  const char *const *environ);
void web_rig_close(struct web_rig *r);

/* Calls at r->now_us, which then is the call's end. Each returns the event. */
const struct cloud_event *web_rig_create(struct web_rig *r, const char *intent, const char *offer);
const struct cloud_event *web_rig_remove(struct web_rig *r, const char *handle, const char *intent);
/* Starts it again, or stops it. */
const struct cloud_event *web_rig_turn(struct web_rig *r, const char *handle, const char *intent,
                                       bool on);
const struct cloud_event *web_rig_list(struct web_rig *r);
const struct cloud_event *web_rig_prices(struct web_rig *r);
