/* none.c - let the fleet follow its signal at once.
 *
 * This is for signals that shape themselves (Dynamo, SkyServe, Ray Serve, BlitzScale, AIBrix). */
#include "policies/scale/shape/shape.h"

#include <string.h>

static void shape(void *state, const struct scale_shape_config *config,
                  const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret)
{
    (void)state, (void)config, (void)now_us;
    *ret = (struct scale_shaped){ 0 };
    memcpy(ret->target, ask->want, ask->pool_count * sizeof *ask->want);
}

const struct scale_shaper scale_shape_none = {
    .name = "none",
    .about = "follow the signal at once",
    .source = "for signals that shape themselves",
    .shape = shape,
};
