/* service_status.h - decides the conditions of a MusterService and writes its status.
 *
 * Layer:   controller/objects
 * Threads: pure
 *
 *     Accepted       the specification is in force; else the reason, and an earlier one stays in force
 *     Ready          requests are served: an instance is ready, or none runs and the first request starts one
 *     Progressing    instances are to come or to go
 *     BudgetReached  the budget holds instances back
 *     StockedOut     a pool lacks instances, and all its offers last said that there is nothing to be had. It stays
 *                    while they are asked again, until another instance is ready: a Pod that was made is none yet
 */
#pragma once
#include "controller/objects/service_facts.h"
#include "controller/objects/service_object.h"

#define SERVICE_MESSAGE_BYTES 512
#define SERVICE_REASON_BYTES 48

enum service_condition {
    SERVICE_ACCEPTED,
    SERVICE_READY,
    SERVICE_PROGRESSING,
    SERVICE_BUDGET_REACHED,
    SERVICE_STOCKED_OUT,
    SERVICE_CONDITION_COUNT
};
extern const char *const service_condition_names[SERVICE_CONDITION_COUNT];

enum service_truth { SERVICE_UNKNOWN, SERVICE_FALSE, SERVICE_TRUE };

struct service_state { /* one condition */
    enum service_truth truth;
    char reason[SERVICE_REASON_BYTES]; /* a word in CamelCase; empty: the condition was never set */
    char message[SERVICE_MESSAGE_BYTES];
    int64_t since_us; /* a date */
    uint32_t ready;   /* StockedOut: instances that were ready when it became true */
};

/* Holds the decision about the newest specification of the object. */
struct service_verdict {
    bool tried;
    int64_t generation;  /* of the object that it is about */
    const char *refused; /* reason in CamelCase, static; NULL: it is in force */
    bool before;         /* refused, while an earlier specification is in force */
    struct err why;
};

/* The share of requests that met the SLO, over the last minutes: counters at fixed distances. */
#define ATTAINMENT_STEPS 10
#define ATTAINMENT_STEP_US 30000000
struct attainment {
    struct {
        uint64_t met, missed;
    } step[ATTAINMENT_STEPS]; /* a ring */
    uint32_t count, next;
    int64_t taken_us;
};
void attainment_take(struct attainment *a, uint64_t met, uint64_t missed, int64_t now_us);

/* Returns the share since the oldest step; negative: no request ended. */
double attainment_of(const struct attainment *a, uint64_t met, uint64_t missed);

/* Fills the conditions. One whose truth stays keeps its date. */
void service_conditions(const struct service_verdict *v, const struct service_facts *f,
                        int64_t date_us, struct service_state state[SERVICE_CONDITION_COUNT]);

/* Reads the conditions of an object's status, so that dates outlive this process. */
void service_conditions_read(struct str object,
                             struct service_state state[SERVICE_CONDITION_COUNT]);

/* Appends the object that server-side apply takes for the status. `selector` matches the service's Pods;
 * `attainment` is negative where unknown. */
int service_status_write(const struct kube_meta *meta, const char *selector,
                         const struct service_verdict *v, const struct service_facts *f,
                         double attainment,
                         const struct service_state state[SERVICE_CONDITION_COUNT],
                         struct buf *out);
