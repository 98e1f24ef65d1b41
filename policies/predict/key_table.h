/* key_table.h - the default predictor's state, for policies that are built on it.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 */
#pragma once
#include "policies/predict/lengths.h"

#define KEY_TABLE_WAYS 4
#define KEY_TABLE_SETS 4096

struct key_entry {
    uint64_t key;  /* 0: empty */
    uint64_t used; /* the table's clock when last touched */
    struct length_hist hist;
};

struct key_table {
    uint64_t clock; /* ends learned */
    struct length_offset p90;
    uint32_t unused; /* no byte of a state is undefined */
    struct key_entry entry[KEY_TABLE_SETS * KEY_TABLE_WAYS];
};
