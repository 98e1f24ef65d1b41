/* cmd_plan_layers.c - `muster plan layers`: place the layers of a model on unequal devices.
 *
 * The problem consists of the devices' speeds, memory and links; the layout that is shown has room for its KV. */

#include "cli/plan/cmd_plan_layers.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/plan/cmd_plan.h"
#include "cli/remote.h"

#include <math.h>
#include <stdio.h>

#define SEED 1          /* of searches: the same problem has the same layout */
#define FLOW_MIN 1e-9   /* relative, as in policies/layers/layers.c */
#define ROUNDING 1e-6   /* of whole batches */
#define LAYER_BYTES 2.0 /* of one number of a token that goes to the next stage */

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

/* Returns true if the devices may share layers; *efficiency falls to the lowest of theirs. */
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
        /* A device that cannot share layers counts as a machine of its own. */
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

/* Returns how many layers all devices hold together, each beside the KV of `batches` batches. */
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

/* ---- the result ------------------------------------------------------------------------------- */

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

/* Returns the seconds of the longest pipeline that a token may take. Each round extends the paths by a
 * part, so as many rounds as there are parts reach the end of all. */
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

/* Returns the number of batches in progress; 0 where nothing flows. */
static uint32_t under_way(const struct layers_plan *p, struct layers_answer *a)
{
    double through = 0;
    a->token_s = longest_s(&p->problem, a, p->work.batch);
    for (uint32_t s = 0; s < a->stage_count; s++)
        through = fmax(through, a->through_s[a->stage[s]]);
    return (uint32_t)ceil(through * a->token_s / p->work.batch - ROUNDING);
}

void layers_ask(struct layers_plan *p, const struct layers_policy *policy,
                struct layers_answer *ret)
{
    uint32_t batches = 1;
    *ret = (struct layers_answer){ 0 };
    while (ret->batches < batches) { /* more batches leave less room: in the end nothing is found */
        struct rng rng;
        rng_seed(&rng, SEED);
        ret->batches = batches;
        fill_room(p, batches);
        policy->lay(&p->problem, &p->memory, &rng, &ret->layout);
        find_stages(&p->problem, ret);
        batches = under_way(p, ret);
    }
}

struct layers_options {
    struct str model, policy, row;
    struct config_texts devices, compare;
    int64_t batch, context_tokens, machine_devices, link_bytes_s;
    int output;
};

#define AT(member) .offset = offsetof(struct layers_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "devices", .letter = 'd', .type = CONFIG_TEXTS, .required = true, AT(devices),
      .max = LAYERS_DEVICES_MAX,
      .about = "What there is, as 4xa100,8xl4: COUNTxHARDWARE, at most 32 devices in all." },
    { .name = "model", .letter = 'm', .type = CONFIG_TEXT, .default_text = "llama-3-70b", AT(model),
      .about = "Shipped model, or a file with a model's shape, as ./my.spec (models/README.md)." },
    { .name = "policy", .type = CONFIG_TEXT, .default_text = LAYERS_DEFAULT, AT(policy),
      .about = "Policy that lays; `muster policies layers` lists them." },
    { .name = "row", .type = CONFIG_TEXT, AT(row),
      .about = "Former name of --policy, read in this release for the last time." },
    { .name = "compare", .type = CONFIG_TEXTS, AT(compare), .max = PLAN_COMPARE_MAX,
      .about = "Policies to ask beside it." },
    { .name = "batch", .letter = 'b', .type = CONFIG_INT, .default_text = "8", .min = 1,
      .max = 65536, AT(batch),
      .about = "Sequences that decode in one step of a device." },
    { .name = "context", .type = CONFIG_INT, .default_text = "1024", .min = 1, .max = 1e7,
      .unit = "tokens", AT(context_tokens), .about = "Mean context of a sequence, whose KV is kept." },
    { .name = "machine", .type = CONFIG_INT, .default_text = "8", .min = 1,
      .max = LAYERS_DEVICES_MAX, AT(machine_devices),
      .about = "Most devices of one item that stand in one machine and may share layers." },
    { .name = "link", .type = CONFIG_BYTES, .default_text = "1.25GB", .min = 1e3, .max = 1e13,
      AT(link_bytes_s),
      .about = "Bytes a second between machines; within one the hardware's own link counts." },
    REMOTE_OUTPUT_ROW(struct layers_options, output),
};

// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct layers_options, rows);

static const struct opt_command usage = {
    .name = "muster plan layers",
    .about = "Lay the layers of one model on unequal devices so that most tokens flow through.",
    .options = &record,
    .notes =
        "A planner only: no engine runs stages yet. Speeds are of decode steps, by the step-time\n"
        "model at --batch and --context; beside its layers a device keeps the KV of all batches\n"
        "that are under way, more of them the longer the pipelines are. The share is of what all\n"
        "devices could do if each were busy all the time. Policies agree on how\n"
        "tokens flow: from the end of one range into any range that holds the next layer, no more\n"
        "than a device computes or a link carries.\n",
};

#define KIND "layers"

struct answers {
    const struct layers_plan *plan;
    struct plan_policies policies;
    struct layers_answer answer[PLAN_POLICIES_MAX];
};

static double share(const struct layers_plan *p, const struct layers_answer *a)
{
    return a->layout.rate_s / p->most_s;
}

static uint32_t devices_used(const struct layers_answer *a)
{
    uint32_t used = 0;
    for (uint32_t s = 0; s < a->stage_count; s++)
        used |= a->layout.part[a->stage[s]].devices;
    return (uint32_t)__builtin_popcount(used);
}

/* ---- output ----------------------------------------------------------------------------------- */

static void put_next(struct json_writer *w, const struct layers_answer *a, uint32_t part)
{
    json_key(w, "next");
    json_array(w);
    for (uint32_t s = 0; s < a->stage_count; s++) {
        double flow = a->layout.flow[part][a->stage[s]];
        if (flow <= 0) continue;
        json_object(w);
        json_kv_u64(w, "stage", s);
        json_kv_f64(w, "tokens_per_s", flow);
        json_object_end(w);
    }
    json_array_end(w);
    json_kv_f64(w, "to_clients_tokens_per_s", a->layout.flow_out[part]);
}

static void put_stage(struct json_writer *w, const struct layers_plan *p,
                      const struct layers_answer *a, uint32_t part)
{
    const struct layers_part *at = &a->layout.part[part];
    uint32_t device = (uint32_t)__builtin_ctz(at->devices);
    json_object(w);
    json_kv_u64(w, "first_layer", at->first);
    json_kv_u64(w, "layers", at->count);
    json_kv_text(w, "hardware", p->hardware[device]->name);
    json_kv_u64(w, "machine", p->machine[device]);
    json_key(w, "devices");
    json_array(w);
    for (uint32_t d = 0; d < p->problem.device_count; d++)
        if (at->devices >> d & 1) json_put_u64(w, d);
    json_array_end(w);
    json_kv_f64(w, "tokens_per_s", a->through_s[part]);
    json_kv_f64(w, "tokens_per_s_max", a->most_s[part]);
    put_next(w, a, part);
    json_object_end(w);
}

static void put_answer(struct json_writer *w, const void *ctx, uint32_t i)
{
    const struct answers *answers = ctx;
    const struct layers_plan *p = answers->plan;
    const struct layers_answer *a = &answers->answer[i];
    json_object(w);
    json_kv_bool(w, "found", a->layout.found);
    json_kv_text(w, "why", a->layout.why);
    json_kv_u64(w, "kv_batches", a->batches);
    json_kv_f64(w, "tokens_per_s", a->layout.rate_s);
    json_kv_f64(w, "share", share(p, a));
    json_kv_f64(w, "token_s", a->token_s);
    json_kv_u64(w, "devices_used", devices_used(a));
    json_key(w, "stages");
    json_array(w);
    for (uint32_t s = 0; s < a->stage_count; s++)
        put_stage(w, p, a, a->stage[s]);
    json_array_end(w);
    json_object_end(w);
}

static void write_json(const struct answers *a, struct buf *out)
{
    const struct layers_plan *p = a->plan;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "model", p->work.model.name);
    json_kv_u64(&w, "layers", p->problem.layers);
    json_kv_u64(&w, "devices", p->problem.device_count);
    json_kv_u64(&w, "batch", p->work.batch);
    json_kv_u64(&w, "context_tokens", p->work.context_tokens);
    json_kv_f64(&w, "tokens_per_s_all_busy", p->most_s);
    json_kv_f64(&w, "split_efficiency", p->problem.split_efficiency);
    json_kv_bool(&w, "extrapolated", p->extrapolated);
    plan_policies_json(&w, &a->policies, put_answer, a);
    json_object_end(&w);
    buf_byte(out, '\n');
}

static void say_answer(struct buf *out, const struct layers_plan *p, const char *name,
                       const struct layers_answer *a)
{
    buf_printf(out, "%-10s ", name);
    if (a->layout.found)
        buf_printf(out, "%.0f tokens/s, %.1f %% of that, a token in at most %.0f ms, %u devices: ",
                   a->layout.rate_s, 100 * share(p, a), 1e3 * a->token_s, devices_used(a));
    else
        buf_text(out, "none: ");
    buf_printf(out, "%s (KV of %u batch%s)\n", a->layout.why, a->batches,
               a->batches == 1 ? "" : "es");
}

static void say_stages(struct buf *out, const struct layers_plan *p, const struct layers_answer *a)
{
    buf_printf(out, "%12s  %-17s %8s %9s %9s\n", "LAYERS", "DEVICES", "MACHINE", "TOKENS/S",
               "AT MOST");
    for (uint32_t s = 0; s < a->stage_count; s++) {
        const struct layers_part *at = &a->layout.part[a->stage[s]];
        uint32_t device = (uint32_t)__builtin_ctz(at->devices);
        char layers[32], devices[64];
        snprintf(layers, sizeof layers, "%u-%u", at->first, at->first + at->count - 1);
        snprintf(devices, sizeof devices, "%d x %s", __builtin_popcount(at->devices),
                 p->hardware[device]->name);
        buf_printf(out, "%12s  %-17s %8u %9.0f %9.0f\n", layers, devices, p->machine[device],
                   a->through_s[a->stage[s]], a->most_s[a->stage[s]]);
    }
}

static void write_text(const struct answers *a, struct buf *out)
{
    const struct layers_plan *p = a->plan;
    buf_printf(out,
               "%s: %u layers, batches of %u sequences with %u tokens each; all %u devices busy "
               "all the time%s: %.0f tokens/s\n",
               p->work.model.name, p->problem.layers, p->work.batch, p->work.context_tokens,
               p->problem.device_count, p->extrapolated ? " (extrapolated)" : "", p->most_s);
    for (uint32_t i = 0; i < a->policies.count; i++)
        say_answer(out, p, a->policies.name[i], &a->answer[i]);
    if (a->answer[0].layout.found) say_stages(out, p, &a->answer[0]);
}

/* ---- the command ------------------------------------------------------------------------------ */

static int read_question(const struct layers_options *o, struct layers_plan *p, struct err *err)
{
    struct layers_work work = { .batch = (uint32_t)o->batch,
                                .context_tokens = (uint32_t)o->context_tokens,
                                .link_bytes_s = (double)o->link_bytes_s,
                                .machine_devices = (uint32_t)o->machine_devices };
    int rc = model_file_find(o->model, &work.model, err);
    if (rc < 0) return err_prefix(err, rc == -EINVAL ? COMMAND_MISUSED : rc, "--model");
    rc = layers_devices(p, o->devices.items, o->devices.count, &work, err);
    return rc == -EINVAL ? COMMAND_MISUSED : layers_fill(p, err);
}

static int plan_layers(const void *options, struct err *err)
{
    const struct layers_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    static struct layers_plan plan; /* large: one a process */
    static struct answers answers;
    int rc = plan_policies_find(KIND, o->policy, o->row, &o->compare, &answers.policies, err);
    if (rc == 0) rc = read_question(o, &plan, err);
    if (rc < 0) return rc;
    answers.plan = &plan;
    for (uint32_t i = 0; i < answers.policies.count; i++)
        layers_ask(&plan, layers_table[answers.policies.at[i]], &answers.answer[i]);
    if (o->output == REMOTE_JSON)
        write_json(&answers, &out);
    else
        write_text(&answers, &out);
    rc = command_print(&out, err);
    if (rc < 0) return rc;
    return answers.answer[0].layout.found ? 0 : EXIT_FAILED;
}

int plan_layers_run(int argc, char *const *argv)
{
    struct layers_options options;
    return command_run(&usage, argc, argv, &options, plan_layers);
}
