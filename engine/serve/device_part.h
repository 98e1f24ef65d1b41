/* device_part.h - what the files of the device share: its mailbox, its loading, its thread.
 *
 * Layer:   engine/serve; device*.c only
 * Threads: as the members say; device_deliver runs on the loop's, the others on the device's
 */
#pragma once
#include "engine/serve/device.h"
#include "engine/serve/step_log.h"
#include "engine/serve/throttle.h"

#include <pthread.h>

struct device {
    struct device_config config;
    struct device_events events;
    struct meters *meters;
    struct loop *loop;
    pthread_t thread;

    pthread_mutex_t lock; /* guards all below up to `blocks` */
    pthread_cond_t wake;
    bool stop;
    struct list in;    /* jobs with a submit or an abort */
    struct list calls; /* device_call */
    struct list out;   /* jobs with mail */
    struct list done;  /* calls that have run */
    bool posted;
    bool blocks_new;
    struct device_stats stats;
    double clock;            /* wished; 0: none, full speed */
    struct wire_work work;   /* without its span */
    struct kv_event *blocks; /* ring of the last events, place seq % DEVICE_EVENTS_MAX */

    struct pulse pulse; /* atomic */

    /* device thread only */
    struct model *model;
    struct executor *x;
    struct list active; /* jobs with a session */
    struct throttle throttle;
    struct step_log step_log;
    struct sched_counts metered; /* what the metrics have heard of */
    uint64_t evictions;          /* likewise */
    struct device_info info;
    int64_t began_us; /* constant */
    char failure[ERR_TEXT_MAX];
};

/* loop_post's callback: mail, calls that have run and block events go to their owners. */
void device_deliver(void *arg);

/* Opens the step log, loads the model, sizes the pages, makes the executor. */
int device_load(struct device *d, const struct executor_events *events, struct err *err);
