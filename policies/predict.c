/* predict.c - the table of output-length predictors. */
#include "policies/predict.h"

#include "base/core/bits.h"

extern const struct predict_policy predict_key_table;

const struct predict_policy *const predict_table[] = { &predict_key_table };
const uint32_t predict_count = COUNT_OF(predict_table);

const struct predict_policy *predict_find(struct str name)
{
    for (uint32_t i = 0; i < predict_count; i++) {
        if (str_eq(str_from(predict_table[i]->name), name)) return predict_table[i];
    }
    return NULL;
}
