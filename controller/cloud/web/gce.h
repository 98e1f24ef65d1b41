/* gce.h - has what creates of Google Compute Engine share: the stages, requests, and what a create ends with.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/gce_order.h"
#include "controller/cloud/web/gce_read.h"
#include "controller/cloud/web/web_step.h"

#define GCE_POLL_US 2000000 /* between looks at an operation; most take 5 to 20 s */
#define GCE_ROUNDS_MAX 8    /* request ids of one create in a zone */
#define GCE_ID_BYTES 37

/* op->stage: what was asked for, in which of the offer's zones, with which request id. */
enum gce_phase {
    GCE_BEGIN,
    GCE_LOOK,
    GCE_INSERT,
    GCE_POLL,
    GCE_NAMED,
    GCE_DELETE,
    GCE_BULK,
    GCE_BULK_POLL,
    GCE_BULK_LOOK,
    GCE_TURN, /* a stop or a start; the next is the look at its operation */
    GCE_TURNING
};
#define STAGE(phase, zone, round) ((uint32_t)(phase) | (zone) << 8 | (round) << 16)
#define PHASE(stage) ((enum gce_phase)((stage)&0xff))
#define ZONE(stage) ((stage) >> 8 & 0xff)
#define ROUND(stage) ((stage) >> 16)

/* Asks for a path below the project. */
int gce_ask(const struct web_provider *p, struct web_op *op, const char *method,
            const struct buf *path, struct web_step *ret);

/* Writes a UUID that is the same for each try of a create in a zone, or a region, with the stage's round. */
void gce_request_id(const struct web_provider *p, const struct web_op *op, struct str where,
                    char ret[GCE_ID_BYTES]);

/* Asks for the instances with the op's intent, and takes a page of them. True: it was the last; false: *ret has the
 * next request, or the end. What is ours is in op->made. */
void gce_ask_intent(const struct web_provider *p, struct web_op *op, struct web_step *ret);
bool gce_take_intent(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                     struct gce_reading *read, struct web_step *ret);

/* Asks for an instance in a zone of the offer. */
void gce_insert(const struct web_provider *p, struct web_op *op, uint32_t zone, uint32_t round,
                struct web_step *ret);

/* Ends a create well, with the instance in that zone. */
void gce_make(struct web_op *op, struct str zone, int64_t now_us, struct web_step *ret);

/* A create of one of several types and zones (gce_bulk.c): its requests, and what replies in its phases mean. */
void gce_bulk(const struct web_provider *p, struct web_op *op, uint32_t round,
              struct web_step *ret);
void gce_bulk_step(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                   struct gce_reading *read, struct web_step *ret);
