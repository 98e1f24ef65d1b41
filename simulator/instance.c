/* instance.c - which kind of instance a pool's hardware asks for. */
#include "simulator/instance.h"

int instance_new(const struct instance_config *config, struct instance **ret, struct err *err)
{
    return config->pool->hardware || config->pool->has_step ? paged_new(config, ret, err)
                                                            : serial_new(config, ret, err);
}

void instance_limits_get(const struct sim_config *sim, const struct sim_pool *pool,
                         struct instance_limits *ret)
{
    if (pool->hardware || pool->has_step) {
        paged_limits(sim, pool, ret);
    } else {
        serial_limits(ret);
    }
}

void instance_free(struct instance *in)
{
    if (in) in->kind->free(in);
}
