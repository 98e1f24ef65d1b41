/* layout_move.c - layouts before and after a loss, and the bytes that they have in common. */
#include "cli/plan/layout_move.h"

#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/perf/roofline.h"

#include <math.h>

#define PURPOSE_LOSS 1 /* the random stream that devices are lost by */

/* ---- layouts ---------------------------------------------------------------------------------- */

static uint32_t first_layer(const struct layout_move *r, uint32_t stage, uint32_t stages)
{
    return r->model.layers * stage / stages;
}

static uint32_t most_layers(const struct layout_move *r, uint32_t stages)
{
    return ceil_div_u32(r->model.layers, stages);
}

static double kv_bytes(const struct layout_move *r, uint32_t stages)
{
    double tokens = (double)r->batch * stages * r->context_tokens;
    return tokens * model_spec_kv_token_bytes(&r->model) / r->model.layers;
}

static bool holds(const struct layout_move *r, const struct roofline *f, uint32_t stages)
{
    double room = fmax(0, f->kv_room_bytes + f->weight_bytes);
    return most_layers(r, stages) * (r->layer_bytes + kv_bytes(r, stages)) <= room;
}

/* Of all pipelines together, each as fast as its largest stage. */
static double tokens_s(const struct layout_move *r, const struct roofline *f, uint32_t devices,
                       uint32_t stages)
{
    uint64_t tokens = (uint64_t)r->batch * r->context_tokens;
    struct perf_shape shape = { .decoding_seqs = r->batch,
                                .kv_tokens_read = tokens,
                                .kv_tokens_decoding = tokens };
    double step_s = roofline_step_s(f, &shape) * most_layers(r, stages) / r->model.layers;
    return devices / stages * (r->batch / step_s);
}

/* 0: no number of stages holds the model. */
static uint32_t best_stages(const struct layout_move *r, const struct roofline *f, uint32_t devices)
{
    uint32_t best = 0;
    double most = 0;
    for (uint32_t stages = 1; stages <= devices && stages <= r->model.layers; stages++) {
        if (!holds(r, f, stages)) continue;
        double rate = tokens_s(r, f, devices, stages);
        if (rate <= most) continue;
        most = rate;
        best = stages;
    }
    return best;
}

static int check_before(const struct layout_move *r, const struct roofline *f, struct err *err)
{
    if (r->stages > r->model.layers || r->devices % r->stages != 0) {
        return err_set(err, -EINVAL, "%u devices are no whole pipelines of %u stages", r->devices,
                       r->stages);
    }
    if (!holds(r, f, r->stages)) {
        return err_set(err, -EINVAL,
                       "%u stages of %s do not hold %s beside the KV of %u sequences of %u tokens; "
                       "more stages would",
                       r->stages, r->hardware->name, r->model.name, r->batch * r->stages,
                       r->context_tokens);
    }
    if (r->lost < r->devices) return 0;
    return err_set(err, -EINVAL, "%u of %u devices are lost: none stays", r->lost, r->devices);
}

int layout_move_init(struct layout_move *r, struct err *err)
{
    struct roofline f;
    if (!roofline_init(&f, r->hardware, &r->model, 1))
        return err_set(err, -EINVAL, "%s cannot run %s", r->hardware->name, r->model.name);
    r->layer_bytes = model_spec_weights(&r->model) * r->model.weight_bytes / r->model.layers;
    r->layer_kv_bytes = kv_bytes(r, r->stages);
    int rc = check_before(r, &f, err);
    if (rc < 0) return rc;
    uint32_t stay = r->devices - r->lost;
    r->pipelines = r->devices / r->stages;
    if (r->stages_after == 0) r->stages_after = best_stages(r, &f, stay);
    if (r->stages_after == 0 || r->stages_after > min_u32(stay, r->model.layers) ||
        !holds(r, &f, r->stages_after)) {
        return err_set(err, -EINVAL,
                       "the %u devices that stay hold no pipeline of %s with its KV in %s stages",
                       stay, r->model.name, r->stages_after ? "so many" : "any number of");
    }
    r->pipelines_after = stay / r->stages_after;
    r->restart_bytes = r->pipelines_after * (r->layer_bytes * r->model.layers);
    return 0;
}

/* ---- a loss ----------------------------------------------------------------------------------- */

/* Who stays, in order. */
static uint32_t draw(const struct layout_move *r, uint32_t number, uint32_t stay[MOVE_MAX])
{
    struct rng rng;
    uint32_t count = 0;
    bool gone[MOVE_MAX] = { false };
    rng_stream(&rng, r->seed, number, PURPOSE_LOSS);
    for (uint32_t left = r->lost; left > 0;) {
        uint32_t d = (uint32_t)rng_below(&rng, r->devices);
        left -= !gone[d];
        gone[d] = true;
    }
    for (uint32_t d = 0; d < r->devices; d++)
        if (!gone[d]) stay[count++] = d;
    return count;
}

/* heir[p]: the new pipeline that takes on the sequences of p; MOVE_NONE where they are lost. */
static void find_heirs(const struct layout_move *r, const uint32_t *stay, uint32_t count,
                       uint32_t heir[MOVE_MAX])
{
    uint32_t whole[MOVE_MAX] = { 0 }, next = 0;
    for (uint32_t i = 0; i < count; i++)
        whole[stay[i] / r->stages]++;
    for (uint32_t p = 0; p < r->pipelines; p++) {
        bool can = whole[p] == r->stages && next < r->pipelines_after;
        heir[p] = can ? next++ : MOVE_NONE;
    }
}

static uint32_t shared_layers(const struct layout_move *r, uint32_t before, uint32_t after)
{
    uint32_t from =
        max_u32(first_layer(r, before, r->stages), first_layer(r, after, r->stages_after));
    uint32_t to =
        min_u32(first_layer(r, before + 1, r->stages), first_layer(r, after + 1, r->stages_after));
    return to > from ? to - from : 0;
}

static void fill(const struct layout_move *r, const uint32_t *stay, uint32_t count,
                 struct move_problem *p)
{
    uint32_t heir[MOVE_MAX];
    bool has_heritage[MOVE_MAX] = { false };
    *p = (struct move_problem){ .from_count = count,
                                .to_count = r->pipelines_after * r->stages_after,
                                .bytes_s = r->link_bytes_s };
    find_heirs(r, stay, count, heir);
    for (uint32_t k = 0; k < r->pipelines; k++)
        if (heir[k] != MOVE_NONE) has_heritage[heir[k]] = true;
    for (uint32_t to = 0; to < p->to_count; to++) {
        uint32_t stage = to % r->stages_after, pipeline = to / r->stages_after;
        uint32_t layers =
            first_layer(r, stage + 1, r->stages_after) - first_layer(r, stage, r->stages_after);
        double kv = has_heritage[pipeline] ? r->layer_kv_bytes : 0;
        p->needed_bytes[to] = layers * (r->layer_bytes + kv);
        for (uint32_t i = 0; i < count; i++) {
            double kept = heir[stay[i] / r->stages] == pipeline ? r->layer_kv_bytes : 0;
            p->reused_bytes[i][to] =
                shared_layers(r, stay[i] % r->stages, stage) * (r->layer_bytes + kept);
        }
    }
}

void layout_move_ask(struct layout_move *r, const struct move_policy *row,
                     struct layout_move_answer *ret)
{
    static struct move_problem problem; /* large: one a process */
    ret->in_notice = 0;
    for (uint32_t k = 0; k < r->draws; k++) {
        uint32_t stay[MOVE_MAX];
        uint32_t count = draw(r, k, stay);
        struct move_verdict v;
        fill(r, stay, count, &problem);
        row->map(&problem, &r->work, &v);
        ret->sent_bytes[k] = v.sent_bytes;
        ret->reused_bytes[k] = v.reused_bytes;
        ret->seconds[k] = v.seconds;
        ret->in_notice += v.seconds <= r->notice_s;
        for (uint32_t i = 0; k == 0 && i < count; i++) {
            ret->device[i] = stay[i];
            ret->to[i] = v.to[i];
        }
        if (k == 0) ret->count = count;
    }
}
