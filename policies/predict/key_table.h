/* key_table.h - the state of the default predictor, for policies that build on it.
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
    uint64_t used; /* the table's clock when it was last updated */
    struct length_hist hist;
};

struct key_table {
    uint64_t clock; /* outputs learned */
    struct length_offset p90;
    uint32_t unused; /* padding: no byte of a state is undefined */
    struct key_entry entry[KEY_TABLE_SETS * KEY_TABLE_WAYS];
};
