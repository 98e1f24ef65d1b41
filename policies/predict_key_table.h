/* predict_key_table.h - the default predictor's state, for rows that are built on it.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 */
#pragma once
#include "policies/predict_lengths.h"

#define KEY_TABLE_WAYS 4
#define KEY_TABLE_SETS 4096

struct key_entry {
    uint64_t key;          /* 0: empty */
    uint32_t used, unused; /* the table's clock when last touched */
    struct length_hist hist;
};

struct key_table {
    uint32_t clock;
    struct length_offset p90;
    struct key_entry entry[KEY_TABLE_SETS * KEY_TABLE_WAYS];
};
