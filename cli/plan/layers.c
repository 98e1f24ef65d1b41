/* layers.c - speeds, room and links of unequal devices, and a layout that has room for its KV. */
#include "cli/plan/layers.h"

#include "base/core/bits.h"

#include <math.h>

#define SEED 1          /* of searches: the same question has the same answer */
#define FLOW_MIN 1e-9   /* relative, as in place_layers.c */
#define ROUNDING 1e-6   /* of whole batches */
#define LAYER_BYTES 2.0 /* of one number that a token hands on */

/* ---- devices ---------------------------------------------------------------------------------- */

static int add_devices(struct layers_plan *p, struct str item, struct err *err)
{
    uint64_t count;
    struct layers_problem *q = &p->problem;
    struct str name = item, digits = str_cut(&name, 'x');
    if (str_to_u64(digits, &count) < 0 || count == 0 || name.len == 0) {
        return err_set(err, -EINVAL, "--devices: '" STR_FMT "' is not COUNTxHARDWARE, as 4xa100",
                       STR_ARG(item));
    }
    const struct hardware *h = hardware_find(name);
    if (!h) {
        hardware_unknown(name, err);
        return err_prefix(err, -EINVAL, "--devices");
    }
    if (count > LAYERS_DEVICES_MAX - q->device_count) {
        return err_set(err, -EINVAL, "--devices: more than %d devices; plan parts of the fleet",
                       LAYERS_DEVICES_MAX);
    }
    uint32_t machine = q->device_count ? p->machine[q->device_count - 1] + 1 : 0;
    for (uint32_t i = 0; i < count; i++) {
        p->hardware[q->device_count] = h;
        p->machine[q->device_count++] = machine + i / p->work.machine_devices;
    }
    return 0;
}

int layers_devices(struct layers_plan *p, const struct str *items, size_t count,
                   const struct layers_work *work, struct err *err)
{
    int rc = 0;
    *p = (struct layers_plan){ .work = *work };
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = add_devices(p, items[i], err);
    if (rc < 0) return rc;
    return p->problem.device_count > 0 ? 0 : err_set(err, -EINVAL, "--devices is empty");
}

/* ---- the problem ------------------------------------------------------------------------------ */

static double step_s(const struct layers_work *w, const struct roofline *r)
{
    uint64_t tokens = (uint64_t)w->batch * w->context_tokens;
    struct perf_shape shape = { .decoding_seqs = w->batch,
                                .kv_tokens_read = tokens,
                                .kv_tokens_decoding = tokens };
    return roofline_step_s(r, &shape);
}

/* Whether devices may share layers; *efficiency falls to theirs. */
static bool can_share(const struct layers_work *w, const struct hardware *h, double alone_s,
                      double *efficiency)
{
    struct roofline two;
    if (w->machine_devices < 2 || !roofline_init(&two, h, &w->model, 2)) return false;
    *efficiency = fmin(*efficiency, alone_s / (2 * step_s(w, &two)));
    return true;
}

static void fill_device(struct layers_plan *p, uint32_t d)
{
    struct roofline r;
    struct layers_problem *q = &p->problem;
    must(roofline_init(&r, p->hardware[d], &p->work.model, 1));
    double alone_s = step_s(&p->work, &r);
    bool shares = can_share(&p->work, p->hardware[d], alone_s, &q->split_efficiency);
    p->room_bytes[d] = fmax(0, r.kv_room_bytes + r.weight_bytes);
    p->extrapolated |= !r.validated;
    q->device[d] = (struct layers_device){
        .layer_tokens_s = p->work.batch * (double)q->layers / alone_s,
        /* A device that can share nothing stands alone, whatever its machine. */
        .machine = shares ? p->machine[d] : LAYERS_DEVICES_MAX + d,
    };
    p->most_s += q->device[d].layer_tokens_s / q->layers;
}

static void fill_links(struct layers_plan *p)
{
    struct layers_problem *q = &p->problem;
    for (uint32_t a = 0; a < q->device_count; a++) {
        const struct hardware *h = p->hardware[a];
        double within = h->link_bytes_s > 0 ? h->eff_link * h->link_bytes_s : p->work.link_bytes_s;
        for (uint32_t b = 0; b < q->device_count; b++)
            q->bytes_s[a][b] = p->machine[a] == p->machine[b] ? within : p->work.link_bytes_s;
    }
}

/* Returns how many layers all devices hold together, each beside the KV of so many batches. */
static uint32_t fill_room(struct layers_plan *p, uint32_t batches)
{
    const struct model_spec *m = &p->work.model;
    double sequences = (double)batches * p->work.batch;
    double kv = sequences * p->work.context_tokens * model_spec_kv_token_bytes(m) / m->layers;
    double weights = model_spec_weights(m) * m->weight_bytes / m->layers;
    uint32_t sum = 0;
    for (uint32_t d = 0; d < p->problem.device_count; d++) {
        double room = floor(p->room_bytes[d] / (weights + kv));
        p->problem.device[d].layers_max = (uint32_t)fmin(room, m->layers);
        sum += p->problem.device[d].layers_max;
    }
    return sum;
}

int layers_fill(struct layers_plan *p, struct err *err)
{
    const struct model_spec *m = &p->work.model;
    struct layers_problem *q = &p->problem;
    if (m->layers > LAYERS_MAX) {
        return err_set(err, -ERANGE, "%s has %u layers; plans are for at most %d", m->name,
                       m->layers, LAYERS_MAX);
    }
    q->layers = m->layers;
    q->token_bytes = LAYER_BYTES * m->hidden;
    q->split_efficiency = 1;
    for (uint32_t l = 0; l < q->layers; l++)
        q->cost[l] = 1;
    for (uint32_t d = 0; d < q->device_count; d++)
        fill_device(p, d);
    fill_links(p);
    uint32_t room = fill_room(p, 1);
    if (room >= q->layers) return 0;
    return err_set(err, -ENOENT,
                   "these devices hold %u of the %u layers of %s beside the KV of one batch (%u "
                   "sequences of %u tokens)",
                   room, q->layers, m->name, p->work.batch, p->work.context_tokens);
}

/* ---- the answer ------------------------------------------------------------------------------- */

static void find_stages(const struct layers_problem *p, struct layers_answer *a)
{
    const struct layers_layout *l = &a->layout;
    a->stage_count = 0;
    for (uint32_t i = 0; i < l->part_count; i++) {
        a->through_s[i] = l->flow_in[i];
        a->most_s[i] = layers_part_rate(p, &l->part[i]);
        for (uint32_t j = 0; j < l->part_count; j++)
            a->through_s[i] += l->flow[j][i];
        if (a->through_s[i] <= l->rate_s * FLOW_MIN) continue;
        uint32_t at = a->stage_count++;
        for (; at > 0; at--) {
            const struct layers_part *before = &l->part[a->stage[at - 1]];
            if (before->first <= l->part[i].first) break;
            a->stage[at] = a->stage[at - 1];
        }
        a->stage[at] = i;
    }
}

/* Seconds of the longest pipeline that a token may take. Parts that follow one end later than it, so
 * that as many rounds as there are parts settle all. */
static double longest_s(const struct layers_problem *p, const struct layers_answer *a, double batch)
{
    const struct layers_layout *l = &a->layout;
    double most = 0, until[LAYERS_PARTS_MAX];
    for (uint32_t i = 0; i < l->part_count; i++)
        until[i] = batch / a->most_s[i];
    for (uint32_t round = 0; round < l->part_count; round++)
        for (uint32_t i = 0; i < l->part_count; i++)
            for (uint32_t j = 0; j < l->part_count; j++) {
                if (l->flow[i][j] <= l->rate_s * FLOW_MIN) continue;
                double link = layers_link_rate(p, l->part[i].devices, l->part[j].devices);
                until[j] = fmax(until[j], until[i] + batch / link + batch / a->most_s[j]);
            }
    for (uint32_t s = 0; s < a->stage_count; s++)
        most = fmax(most, until[a->stage[s]]);
    return most;
}

/* Batches under way; 0 where nothing flows. */
static uint32_t under_way(const struct layers_plan *p, struct layers_answer *a)
{
    double through = 0;
    a->token_s = longest_s(&p->problem, a, p->work.batch);
    for (uint32_t s = 0; s < a->stage_count; s++)
        through = fmax(through, a->through_s[a->stage[s]]);
    return (uint32_t)ceil(through * a->token_s / p->work.batch - ROUNDING);
}

void layers_ask(struct layers_plan *p, const struct layers_policy *row, struct layers_answer *ret)
{
    uint32_t batches = 1;
    *ret = (struct layers_answer){ 0 };
    while (ret->batches < batches) { /* more of them leave less room: at last nothing is found */
        struct rng rng;
        rng_seed(&rng, SEED);
        ret->batches = batches;
        fill_room(p, batches);
        row->lay(&p->problem, &p->memory, &rng, &ret->layout);
        find_stages(&p->problem, ret);
        batches = under_way(p, ret);
    }
}
