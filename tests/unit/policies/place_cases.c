/* place_cases.c - makes problems of placement; see place_cases.h. */
#include "tests/unit/policies/place_cases.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/perf/roofline.h"

#include <math.h>

void place_case_slices(struct rng *rng, uint32_t types, uint32_t groups, uint32_t count,
                       double scale, struct solver_problem *p)
{
    *p = (struct solver_problem){ .types = types, .groups = groups };
    double speed[SOLVER_TYPES_MAX];
    for (uint32_t t = 0; t < types; t++) {
        speed[t] = 0.5 + 4 * rng_f64(rng);
        p->price[t] = round(100 * speed[t] * (0.5 + rng_f64(rng))) / 100;
        p->max[t] = rng_below(rng, 4) ? 100 : 1 + (uint32_t)rng_below(rng, 4);
    }
    for (uint32_t g = 0; g < groups; g++) {
        double size = scale * -log(1 - rng_f64(rng));
        p->count[g] = count;
        for (uint32_t t = 0; t < types; t++) {
            p->load[g][t] = size / speed[t] * (0.6 + 0.8 * rng_f64(rng));
            if (t > 0 && rng_below(rng, 10) == 0) p->load[g][t] = INFINITY;
        }
    }
}

void place_case_big(struct rng *rng, uint32_t i, struct solver_problem *p)
{
    bool distinct = i % 2;
    place_case_slices(rng, 4, distinct ? 64 : 16, distinct ? 1 : 4, 0.05 + rng_f64(rng), p);
}

struct kind {
    const char *name;
    uint32_t count, region;
};

/* Makes llama-2-70b on devices of several kinds, with links of 10 Gb/s within a region. */
static void cluster(const struct kind *kinds, size_t kind_count, double between_bytes_s,
                    struct layers_problem *p)
{
    struct model_spec m;
    uint32_t region[LAYERS_DEVICES_MAX];
    must(model_spec_find(STR("llama-2-70b"), &m, NULL) == 0);
    *p = (struct layers_problem){ .layers = m.layers,
                                  .token_bytes = 2.0 * m.hidden,
                                  .split_efficiency = 0.9 };
    for (uint32_t l = 0; l < p->layers; l++)
        p->cost[l] = 1;
    double layer_bytes = model_spec_weights(&m) * m.weight_bytes / m.layers;
    for (size_t k = 0; k < kind_count; k++) {
        const struct hardware *h = hardware_find(str_from(kinds[k].name));
        struct roofline r;
        must(roofline_init(&r, h, &m, 1));
        for (uint32_t i = 0; i < kinds[k].count; i++) {
            region[p->device_count] = kinds[k].region;
            p->device[p->device_count++] = (struct layers_device){
                .layer_tokens_s = 64 / roofline_layer_s(&r, 64),
                .layers_max = (uint32_t)(0.6 * h->mem_bytes / layer_bytes), /* the rest for KV */
                .machine = p->device_count,
            };
        }
    }
    for (uint32_t a = 0; a < p->device_count; a++)
        for (uint32_t b = 0; b < p->device_count; b++)
            p->bytes_s[a][b] = region[a] == region[b] ? 1.25e9 : between_bytes_s;
}

void place_case_helix(struct layers_problem *p)
{
    static const struct kind kinds[] = { { "a100", 4, 0 }, { "l4", 8, 0 }, { "t4", 12, 0 } };
    cluster(kinds, COUNT_OF(kinds), 1.25e9, p);
}

void place_case_regions(struct layers_problem *p)
{
    static const struct kind kinds[] = {
        { "a100", 4, 0 }, { "l4", 2, 1 }, { "t4", 8, 1 }, { "l4", 6, 2 }, { "t4", 4, 2 },
    };
    cluster(kinds, COUNT_OF(kinds), 12.5e6, p);
}
