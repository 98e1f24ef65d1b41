/* fair.c - the table of fairness policies, the one without fairness, and the tenant that loses a place in a full queue.
 *
 *     places[tenant] = requests[tenant] / weight[tenant]
 *     the tenant with the most places loses its last one if places > (requests[newcomer] + 1) / weight[newcomer]
 *
 * Longest-queue drop (McKenney 1990; Suter, Lakshman, Stiliadis and Choudhury, INFOCOM 1998): a
 * queue that refuses new requests fills with those of the tenant that sends most, and a policy that
 * shares out the queue then has no request of the others to serve. With longest-queue drop every
 * tenant that asks for more than its share keeps its share of the places. The comparison is strict,
 * so that two tenants never take the same place from each other in turns. */
#include "policies/fair/fair.h"

#include "base/core/bits.h"

const struct fair_policy *const fair_table[] = {
#define POLICY(name) &fair_##name,
#include "policies/fair/fair.def"
#undef POLICY
};
const uint32_t fair_count = COUNT_OF(fair_table);

const struct fair_policy *fair_find(struct str name)
{
    for (uint32_t i = 0; i < fair_count; i++) {
        if (str_eq(str_from(fair_table[i]->name), name)) return fair_table[i];
    }
    return NULL;
}

uint32_t fair_longest_queue(const struct fair_holding *tenant, uint32_t count, uint32_t newcomer)
{
    uint32_t most = count;
    double places = (tenant[newcomer].requests + 1.0) / tenant[newcomer].weight;
    for (uint32_t i = 0; i < count; i++) {
        if (i == newcomer || !tenant[i].gives_way) continue;
        double has = tenant[i].requests / tenant[i].weight;
        if (!(has > places)) continue;
        most = i;
        places = has;
    }
    return most;
}

/* Keeps one queue for all tenants; the order policy alone decides. */
const struct fair_policy fair_none = {
    .name = "none",
    .about = "one queue for all tenants",
    .source = "the usual queue",
};
