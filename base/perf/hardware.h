/* hardware.h - describes accelerators: their peak rates, and the share of them that kernels reach.
 *
 * Layer:   base/perf (base/core)
 * Threads: constants
 *
 * Peaks come from the data sheet (dense, no sparsity). At most six numbers of a device are fitted: the
 * `eff_` ones (shares of a peak, never above 1) and the time of a layer. They come from measured
 * tables through `muster perf fit`. Where no kernel table exists, validated is false; where attention was
 * not measured, attn_validated is false; estimates made with either are "extrapolated".
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

struct hardware {
    const char *name, *alias; /* alias: NULL for none */
    double flops;             /* peak, in the number format that models usually run in */
    double bytes_s;           /* memory bandwidth, peak */
    double mem_bytes;
    double activation_bytes;      /* kept free of KV, for the tensors of a step */
    double watts_idle, watts_max; /* of one device */
    double cores;                 /* of a CPU, to which its peaks refer; 0: an accelerator */
    double link_bytes_s, link_s;  /* to peers, peak, one way; least all-reduce time. 0: no link */
    double host_s;                /* host time of a step, before and after the device works */
    double seq_s;                 /* host time for each sequence: sampling, detokenising */

    /* Fitted. */
    double eff_bytes, eff_flops; /* matrices: share of bandwidth, of arithmetic */
    double eff_rows;             /* norms, rotations, activations: share of bandwidth */
    double layer_s;              /* time of a layer's kernels beyond bytes and arithmetic */
    double eff_attn;             /* attention of long chunks: share of arithmetic */
    double eff_link;             /* all-reduce: share of the link's bandwidth */

    /* Properties of attention kernels, the same for all accelerators. */
    double attn_s;               /* least time of one kernel */
    double attn_tile;            /* tokens: chunks below it keep only a part of the device busy */
    double attn_spare;           /* extra tokens each query touches: the masked part of tiles */
    double attn_seq;             /* extra tokens that each decoding session reads: its last tile */
    double attn_mixed;           /* factor on the time of decode attention beside a chunk */
    double tokens_validated_max; /* most tokens of a step in the tables behind the constants */
    bool validated;
    bool attn_validated; /* attention was measured on this device, not taken from others */
    bool link_validated; /* eff_link comes from a table of this device, not from others */
};

extern const struct hardware hardware_table[];
extern const uint32_t hardware_count;

/* Finds hardware by name or alias; NULL when there is none. */
const struct hardware *hardware_find(struct str name);

/* Finds the hardware that a driver names as a product ("NVIDIA H100 80GB HBM3"), with its memory; NULL: none of the
 * table's. A PCIe board of a product whose row has the figures of the faster module is none of them. */
const struct hardware *hardware_of_product(struct str product, double mem_bytes);

/* Sets err to say that no hardware has this name, with the nearest name or all names; returns -ENOENT. */
int hardware_unknown(struct str name, struct err *err);
