/* hardware.h - what an accelerator can do, and how much of it kernels get.
 *
 * Layer:   policies (base/core)
 * Threads: constants
 *
 * Peaks are of the data sheet (dense, no sparsity); fitted are at most six numbers a row, the
 * `eff_` ones (shares of a peak, never above 1) and the time of a layer. They come from measured
 * tables through `muster perf fit`; hardware whose kernels nobody measured for us says validated = false,
 * hardware whose attention was not measured says attn_validated = false, and estimates made with
 * either are "extrapolated".
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

struct hardware {
    const char *name, *alias; /* alias: NULL for none */
    double flops;             /* peak, of the type that models usually run in */
    double bytes_s;           /* memory bandwidth, peak */
    double mem_bytes;
    double activation_bytes;      /* kept free of KV: what a step's own tensors may take */
    double watts_idle, watts_max; /* of one device */
    double cores;                 /* a CPU's, that its peaks are of; 0: an accelerator */
    double link_bytes_s, link_s;  /* to its peers, one way, peak; of one all-reduce. 0: no link */
    double host_s;                /* of a step, before and after the device works */
    double seq_s;                 /* more for each sequence of the step: sampling, detokenising */

    /* Fitted. */
    double eff_bytes, eff_flops; /* matrices: share of bandwidth, of arithmetic */
    double eff_rows;             /* norms, rotations, activations: share of bandwidth */
    double layer_s;              /* what a layer's kernels take beside bytes and arithmetic */
    double eff_attn;             /* attention of long chunks: share of arithmetic */
    double eff_link;             /* all-reduce: share of the link's bandwidth */

    /* How attention kernels are written: the same for all accelerators. */
    double attn_s;               /* least time of one */
    double attn_tile;            /* tokens: chunks below it keep only a part of the device busy */
    double attn_spare;           /* tokens more that each query touches: the masked part of tiles */
    double attn_seq;             /* tokens more that each decoding session reads: its last tile */
    double attn_mixed;           /* decode attention beside a chunk takes so many times as long */
    double tokens_validated_max; /* of one step, in the tables behind the constants */
    bool validated;
    bool attn_validated; /* attention was measured on this device, not on others */
    bool link_validated; /* eff_link comes from a table, not from others */
};

extern const struct hardware hardware_table[];
extern const uint32_t hardware_count;

/* By name or alias; NULL when there is none. */
const struct hardware *hardware_find(struct str name);

/* Says that there is none of this name, and the nearest one or all; -ENOENT. */
int hardware_unknown(struct str name, struct err *err);
