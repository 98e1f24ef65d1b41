/* azure_read.h - reads replies of Azure: errors as classes, machines as the controller lists them.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/provider.h"

struct azure_reading {
    const struct web_provider *p;
    struct web_op *op;
    int64_t now_us, wall_us;
    struct listed *item; /* is filled */
    bool is_ours;        /* the fleet's tag says so */
    struct str state;    /* of its provisioning */
};

/* Returns a text in the op's arena; empty: it is not there, or is no text. */
struct str azure_text(struct web_op *op, struct str json, const char *path);

/* Ends the op with what a reply, or an operation, that has failed means. */
void azure_refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                  struct web_step *ret);

/* -EINVAL: it is no machine. */
int azure_read_machine(struct str json, struct azure_reading *r);
