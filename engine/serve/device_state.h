/* device_state.h - what the device thread and the callers of device.h share.
 *
 * Layer:   engine/serve, private to device.c and device_calls.c
 * Threads: as the members say; the lock is held to splice lists and to append to a mail, never across a step
 */
#pragma once
#include "base/core/owner.h"
#include "base/io/loop/lock.h"
#include "engine/serve/device.h"
#include "engine/serve/device_load.h"
#include "engine/serve/metrics.h"
#include "engine/serve/pace.h"

struct device {
    struct device_config config;
    struct device_events events;
    struct engine_metrics *metrics;
    struct loop *loop;
    pthread_t thread;

    struct owner owner; /* the device thread, while it runs */
    struct lock lock;   /* guards all below up to `blocks` */
    pthread_cond_t wake;
    bool stop;
    struct list in;    /* jobs with a submit or an abort */
    struct list calls; /* device_call */
    struct list out;   /* jobs with mail */
    struct list done;  /* calls that have run */
    bool posted;
    bool blocks_new;
    struct device_stats stats;
    double clock;            /* as set; 0: none, full speed */
    struct wire_work work;   /* without its span */
    struct kv_event *blocks; /* ring of the last events, place seq % DEVICE_EVENTS_MAX */

    struct pulse pulse; /* atomic */

    /* device thread only */
    struct model *model, *draft; /* draft NULL: none */
    struct executor *x;
    struct list active; /* jobs with a session */
    struct throttle throttle;
    struct step_log step_log;
    struct sched_counts metered;   /* as last added to the metrics */
    struct drafter_counts drafted; /* likewise */
    uint64_t evictions;            /* likewise */
    double predicted_s;            /* of the step under way */
    struct device_info info;
    int64_t began_us; /* constant */
    char failure[ERR_TEXT_MAX];
};
