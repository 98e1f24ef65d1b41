/* order.c - the table of order rows. */
#include "policies/order.h"

#include "base/core/bits.h"

extern const struct order_policy order_fcfs, order_shortest_predicted, order_response_ratio;

const struct order_policy *const order_table[] = { &order_fcfs, &order_shortest_predicted,
                                                   &order_response_ratio };
const uint32_t order_count = COUNT_OF(order_table);

const struct order_policy *order_find(struct str name)
{
    for (uint32_t i = 0; i < order_count; i++) {
        if (str_eq(str_from(order_table[i]->name), name)) return order_table[i];
    }
    return NULL;
}
