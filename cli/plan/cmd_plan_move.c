/* cmd_plan_move.c - `muster plan move`: give the devices left after a loss their places in the new layout.
 *
 * Layouts before and after the loss are compared by the bytes that they have in common. */

#include "cli/plan/cmd_plan_move.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/perf/roofline.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/plan/cmd_plan.h"
#include "cli/remote.h"

#include <math.h>

#define PURPOSE_LOSS 1 /* the random stream of losses */

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

/* Returns the tokens a second of all pipelines together, each as fast as its largest stage. */
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

/* Returns the number of stages with the most tokens a second; 0 when none holds the model. */
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

/* Draws a loss; fills `stay` with the devices left, in order, and returns their number. */
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

/* Fills heir[p] with the new pipeline that takes on the sequences of p; MOVE_NONE where they are lost. */
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

void layout_move_ask(struct layout_move *r, const struct move_policy *policy,
                     struct layout_move_answer *ret)
{
    static struct move_problem problem; /* large: one a process */
    ret->in_notice = 0;
    for (uint32_t k = 0; k < r->draws; k++) {
        uint32_t stay[MOVE_MAX];
        uint32_t count = draw(r, k, stay);
        struct move_verdict v;
        fill(r, stay, count, &problem);
        policy->map(&problem, &r->work, &v);
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

struct move_options {
    struct str model, hardware, policy, row;
    struct config_texts compare;
    int64_t devices, stages, stages_after, lost, batch, context_tokens, link_bytes_s, notice_us;
    int64_t draws, seed;
    int output;
};

#define AT(member) .offset = offsetof(struct move_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, .default_text = "llama-3-70b", AT(model),
      .about = "Shipped model, or a file with a model's shape, as ./my.spec (models/README.md)." },
    { .name = "hardware", .type = CONFIG_TEXT, .default_text = "a100", AT(hardware),
      .about = "What the devices are." },
    { .name = "devices", .letter = 'd', .type = CONFIG_INT, .default_text = "16", .min = 2,
      .max = MOVE_MAX, AT(devices), .about = "Devices before the loss." },
    { .name = "stages", .type = CONFIG_INT, .default_text = "4", .min = 1, .max = MOVE_MAX, AT(stages),
      .about = "Devices of one pipeline before the loss; each has an even share of the layers." },
    { .name = "lost", .letter = 'l', .type = CONFIG_INT, .default_text = "3", .min = 0,
      .max = MOVE_MAX, AT(lost), .about = "Devices that are taken away." },
    { .name = "stages_after", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = MOVE_MAX,
      AT(stages_after),
      .about = "Devices of one pipeline after the loss; 0 for the number with the most tokens a second." },
    { .name = "policy", .type = CONFIG_TEXT, .default_text = MOVE_DEFAULT, AT(policy),
      .about = "Policy that maps; `muster policies move` lists them." },
    { .name = "row", .type = CONFIG_TEXT, AT(row),
      .about = "Former name of --policy, read in this release for the last time." },
    { .name = "compare", .type = CONFIG_TEXTS, AT(compare), .max = PLAN_COMPARE_MAX,
      .about = "Policies to ask beside it; without it all others." },
    { .name = "batch", .letter = 'b', .type = CONFIG_INT, .default_text = "8", .min = 1,
      .max = 65536, AT(batch),
      .about = "Sequences that decode in one step of a device." },
    { .name = "context", .type = CONFIG_INT, .default_text = "1024", .min = 1, .max = 1e7,
      .unit = "tokens", AT(context_tokens), .about = "Mean context of a sequence, whose KV is kept." },
    { .name = "link", .type = CONFIG_BYTES, .default_text = "1.25GB", .min = 1e3, .max = 1e13,
      AT(link_bytes_s), .about = "Bytes a second that each device can be sent." },
    { .name = "notice", .type = CONFIG_DURATION, .default_text = "30s", .min = 0, .max = 864e8,
      AT(notice_us), .about = "How long before the loss the provider tells." },
    { .name = "draws", .type = CONFIG_INT, .default_text = "200", .min = 1, .max = LAYOUT_MOVE_DRAWS_MAX,
      AT(draws), .about = "Of which devices are lost." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 1e15, AT(seed),
      .about = "Of the draws." },
    REMOTE_OUTPUT_ROW(struct move_options, output),
};

// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct move_options, rows);

static const struct opt_command usage = {
    .name = "muster plan move",
    .about =
        "After a loss, give the places of the new layout to the devices that stay so that least "
        "is sent.",
    .options = &record,
    .notes = "A planner only: no engine takes over another's weights yet. Before the loss the "
             "devices are\n"
             "pipelines of --stages, each with the KV of --batch sequences a stage; after it, "
             "pipelines of\n"
             "--stages-after. What a device holds of its new place, weights and KV of a pipeline "
             "that lost\n"
             "nothing, need not be sent. A restart sends all weights and no KV: all sequences are "
             "computed\n"
             "again. Means are over --draws of the devices lost, which all policies meet alike; "
             "`\u00b1` is 95 %.\n",
};

#define KIND "move"

struct answers {
    const struct layout_move *remap;
    struct plan_policies policies;
    struct layout_move_answer answer[PLAN_POLICIES_MAX];
};

/* ---- output ----------------------------------------------------------------------------------- */

static void put_places(struct json_writer *w, const struct layout_move *r,
                       const struct layout_move_answer *a)
{
    json_key(w, "first_draw");
    json_array(w);
    for (uint32_t i = 0; i < a->count; i++) {
        json_object(w);
        json_kv_u64(w, "device", a->device[i]);
        json_kv_u64(w, "pipeline", a->device[i] / r->stages);
        json_kv_u64(w, "stage", a->device[i] % r->stages);
        json_kv_bool(w, "needed", a->to[i] != MOVE_NONE);
        if (a->to[i] != MOVE_NONE) {
            json_kv_u64(w, "pipeline_after", a->to[i] / r->stages_after);
            json_kv_u64(w, "stage_after", a->to[i] % r->stages_after);
        }
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_answer(struct json_writer *w, const void *ctx, uint32_t i)
{
    const struct answers *answers = ctx;
    const struct layout_move *r = answers->remap;
    const struct layout_move_answer *a = &answers->answer[i], *first = answers->answer;
    json_object(w);
    stats_mean_json(w, "sent_bytes", stats_mean(a->sent_bytes, r->draws));
    stats_mean_json(w, "reused_bytes", stats_mean(a->reused_bytes, r->draws));
    stats_mean_json(w, "seconds", stats_mean(a->seconds, r->draws));
    json_kv_f64(w, "in_notice", (double)a->in_notice / r->draws);
    if (a != first) {
        stats_mean_json(w, "sent_bytes_difference",
                        stats_paired(a->sent_bytes, first->sent_bytes, r->draws));
        stats_mean_json(w, "seconds_difference",
                        stats_paired(a->seconds, first->seconds, r->draws));
    }
    put_places(w, r, a);
    json_object_end(w);
}

static double restart_s(const struct layout_move *r)
{
    uint32_t layers = (r->model.layers + r->stages_after - 1) / r->stages_after;
    return layers * r->layer_bytes / r->link_bytes_s;
}

static void write_json(const struct answers *a, struct buf *out)
{
    const struct layout_move *r = a->remap;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "model", r->model.name);
    json_kv_text(&w, "hardware", r->hardware->name);
    json_kv_u64(&w, "devices", r->devices);
    json_kv_u64(&w, "lost", r->lost);
    json_kv_u64(&w, "stages", r->stages);
    json_kv_u64(&w, "pipelines", r->pipelines);
    json_kv_u64(&w, "stages_after", r->stages_after);
    json_kv_u64(&w, "pipelines_after", r->pipelines_after);
    json_kv_u64(&w, "draws", r->draws);
    json_key(&w, "restart");
    json_object(&w);
    json_kv_f64(&w, "sent_bytes", r->restart_bytes);
    json_kv_f64(&w, "seconds", restart_s(r));
    json_object_end(&w);
    plan_policies_json(&w, &a->policies, put_answer, a);
    json_object_end(&w);
    buf_byte(out, '\n');
}

static void say_answer(struct buf *out, const struct layout_move *r, const char *name,
                       const struct layout_move_answer *a, const struct layout_move_answer *first)
{
    buf_printf(out, "%-10s ", name);
    stats_mean_text(out, stats_mean(a->sent_bytes, r->draws), 1e-9, 1, false);
    buf_text(out, " GB are sent, ");
    stats_mean_text(out, stats_mean(a->reused_bytes, r->draws), 1e-9, 1, false);
    buf_text(out, " GB lie right; ready in ");
    stats_mean_text(out, stats_mean(a->seconds, r->draws), 1, 1, false);
    buf_printf(out, " s, within the notice in %.1f %%", 100.0 * a->in_notice / r->draws);
    if (a != first) {
        buf_text(out, "; sends more: ");
        stats_mean_text(out, stats_paired(a->sent_bytes, first->sent_bytes, r->draws), 1e-9, 1,
                        false);
        buf_text(out, " GB");
    }
    buf_byte(out, '\n');
}

static void say_places(struct buf *out, const struct layout_move *r,
                       const struct layout_move_answer *a)
{
    buf_printf(out, "%10s %10s %7s    %s\n", "DEVICE", "PIPELINE", "STAGE", "BECOMES");
    for (uint32_t i = 0; i < a->count; i++) {
        buf_printf(out, "%10u %10u %7u    ", a->device[i], a->device[i] / r->stages,
                   a->device[i] % r->stages);
        if (a->to[i] == MOVE_NONE)
            buf_text(out, "not needed\n");
        else
            buf_printf(out, "pipeline %u, stage %u\n", a->to[i] / r->stages_after,
                       a->to[i] % r->stages_after);
    }
}

static void write_text(const struct answers *a, struct buf *out)
{
    const struct layout_move *r = a->remap;
    buf_printf(out, "%s on %u x %s: %u pipelines of %u stages; %u lost, then %u of %u; %u draws\n",
               r->model.name, r->devices, r->hardware->name, r->pipelines, r->stages, r->lost,
               r->pipelines_after, r->stages_after, r->draws);
    buf_printf(out, "%-10s %.1f GB of weights are sent, ready in %.1f s; all KV is lost\n",
               "restart", r->restart_bytes / 1e9, restart_s(r));
    for (uint32_t i = 0; i < a->policies.count; i++)
        say_answer(out, r, a->policies.name[i], &a->answer[i], &a->answer[0]);
    say_places(out, r, &a->answer[0]);
}

/* ---- the command ------------------------------------------------------------------------------ */

static int read_question(const struct move_options *o, struct layout_move *r, struct err *err)
{
    *r = (struct layout_move){ .hardware = hardware_find(o->hardware),
                               .devices = (uint32_t)o->devices,
                               .stages = (uint32_t)o->stages,
                               .stages_after = (uint32_t)o->stages_after,
                               .lost = (uint32_t)o->lost,
                               .batch = (uint32_t)o->batch,
                               .context_tokens = (uint32_t)o->context_tokens,
                               .link_bytes_s = (double)o->link_bytes_s,
                               .notice_s = (double)o->notice_us / 1e6,
                               .seed = (uint64_t)o->seed,
                               .draws = (uint32_t)o->draws };
    if (!r->hardware) {
        hardware_unknown(o->hardware, err);
        return err_prefix(err, COMMAND_MISUSED, "--hardware");
    }
    int rc = model_file_find(o->model, &r->model, err);
    if (rc < 0) return err_prefix(err, rc == -EINVAL ? COMMAND_MISUSED : rc, "--model");
    return layout_move_init(r, err) < 0 ? COMMAND_MISUSED : 0;
}

static int plan_move(const void *options, struct err *err)
{
    const struct move_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static struct layout_move remap; /* large: one a process */
    static struct answers answers;
    int rc = plan_policies_find(KIND, o->policy, o->row, &o->compare, &answers.policies, err);
    if (rc == 0) rc = read_question(o, &remap, err);
    if (rc < 0) return rc;
    answers.remap = &remap;
    if (o->compare.count == 0) plan_policies_others(KIND, &answers.policies);
    for (uint32_t i = 0; i < answers.policies.count; i++)
        layout_move_ask(&remap, move_table[answers.policies.at[i]], &answers.answer[i]);
    if (o->output == REMOTE_JSON)
        write_json(&answers, &out);
    else
        write_text(&answers, &out);
    return command_print(&out, err);
}

int plan_move_run(int argc, char *const *argv)
{
    struct move_options options;
    return command_run(&usage, argc, argv, &options, plan_move);
}
