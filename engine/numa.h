/* numa.h - spreads the memory that the process will take over the machine's nodes.
 *
 * Layer:   engine (base/core, base/io)
 * Threads: numa_spread comes before all other threads, which inherit its policy
 *
 * Linux puts a page on the node of the thread that writes it first, so that weights lie where they were read and
 * packed, and all threads read them from there. Spread page by page, they are read with the bandwidth of all nodes
 * together.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdint.h>

#define NUMA_NODES_MAX 1024u
#define NUMA_WORD_BITS (8 * (uint32_t)sizeof(unsigned long))

enum numa_mode {
    NUMA_AUTO, /* where there are several nodes, no policy was given from outside, and the kernel permits it */
    NUMA_INTERLEAVE, /* or refuse to start */
    NUMA_OFF
};

extern const char *const numa_mode_names[]; /* NULL behind the last */

struct numa_nodes {
    unsigned long mask[NUMA_NODES_MAX / NUMA_WORD_BITS];
    uint32_t count;
};

/* Reads a list as the kernel writes it: "0-1,3". -EINVAL: it is not one; -E2BIG: a number beyond the bound. */
int numa_nodes_parse(struct str list, struct numa_nodes *ret, struct err *err);

/* Spreads what is written first from now on. Returns the nodes, 0 if pages go where they went before. */
int numa_spread(enum numa_mode mode, struct err *err);
