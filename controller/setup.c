/* setup.c - turns the configuration into services, pools and command lines, with the checks that
 * the schema alone cannot express.
 *
 * The command line of an engine comes from four places of the configuration:
 *
 *     muster engine  --the file's `engine` section  --model PATH --served-model-name NAME
 *                    --model-sha256 of models.list
 *                    --slo-ttft, --slo-tpot of the service
 *                    the service's `engine` policies and draft model, its engine_flags, the pool's engine_flags
 *
 * The last value of a flag holds, so that the more specific place wins. Another program gets no SLO
 * flags: it would not know them. A pool of another engine kind gets none of these flags but its own: its
 * agent makes the command line from what the pool says. */
#include "controller/setup.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/join.h"
#include "base/io/config/config_value.h"
#include "base/io/log.h"
#include "base/io/models.h"
#include "controller/cloud/cloud_adopted.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/cloud/web/web_user_data.h"
#include "policies/catalog.h"
#include "policies/route/overload.h"
#include "policies/scale/forecast.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHARED "engine"
#define PRICE_MAX 1e4 /* dollars an hour, as the schema has it for price_per_hour */

#define ROW(kind)                                                                     \
    {                                                                                 \
#        kind, "engine." #        kind, offsetof(struct service_section, engine.kind) \
    }
const struct setup_policy setup_engine_policies[] = {
    ROW(preset), ROW(fair),  ROW(order), ROW(admit), ROW(preempt),
    ROW(chunk),  ROW(evict), ROW(draft), ROW(perf),  ROW(predict),
};
const size_t setup_engine_policy_count = COUNT_OF(setup_engine_policies);

struct line {
    struct arena *arena;
    struct str *arg; /* LAUNCH_ARGS_MAX */
    size_t count;    /* may be more: then it does not fit */
    int rc;
};

static void add(struct line *l, struct str arg)
{
    if (l->count < LAUNCH_ARGS_MAX) l->arg[l->count] = arg;
    l->count++;
}

/* Adds --the-name=value. */
static void add_flag(struct line *l, const char *name, struct str value)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, "--");
    for (const char *c = name; *c; c++)
        buf_byte(&text, *c == '_' ? '-' : *c);
    buf_byte(&text, '=');
    buf_str(&text, value);
    struct str copy = text.rc < 0 ? (struct str){ 0 } : arena_str(l->arena, buf_view(&text));
    if (!copy.data) l->rc = -ENOMEM;
    add(l, copy);
}

/* Adds each value of the file's `engine` section that is not a default. */
static void add_shared(struct line *l, const struct config *whole)
{
    const struct config_schema *schema = config_schema_of(whole);
    for (size_t i = 0; i < schema->count; i++) {
        const struct config_section *s = schema->sections[i];
        for (size_t k = 0; strcmp(s->name, SHARED) == 0 && k < s->record->field_count; k++) {
            CLEANUP(buf_fini) struct buf path = { 0 }, value = { 0 }, origin = { 0 };
            const char *name = s->record->fields[k].name;
            buf_printf(&path, SHARED ".%s", name);
            int rc = path.rc < 0 ? path.rc : config_lookup(whole, path.data, &value, &origin, NULL);
            if (rc < 0) l->rc = rc;
            if (rc < 0 || str_starts(buf_view(&origin), STR("default"))) continue;
            add_flag(l, name, buf_view(&value));
        }
    }
}

static void add_slo(struct line *l, const char *name, int64_t us)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = duration_print(us, &text);
    if (rc < 0) l->rc = rc;
    add_flag(l, name, buf_view(&text));
}

static void add_texts(struct line *l, const struct config_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        add(l, texts->items[i]);
}

/* Returns the value of the last --name=VALUE or --name VALUE, the one that holds. */
static struct str last_value(const struct line *l, const char *name)
{
    struct str value = { 0 }, flag = str_from(name);
    for (size_t i = 0; i < l->count; i++) {
        struct str arg = l->arg[i];
        if (str_eq(arg, flag) && i + 1 < l->count) value = l->arg[i + 1];
        if (str_starts(arg, flag) && arg.len > flag.len && arg.data[flag.len] == '=')
            value = str_of(arg.data + flag.len + 1, arg.len - flag.len - 1);
    }
    return value;
}

/* Finds what `model` of a service or a pool means, for the life of the arena. Engines of other kinds know models by
 * names of their own: with `any_word` a word that is no name of the list is left to them. */
static int find_model(const struct controller_config *config, struct str model, bool any_word,
                      struct arena *arena, struct str *ret, const struct models_entry **ret_entry,
                      struct err *err)
{
    struct models_place place;
    *ret_entry = models_find(config->models, model);
    if (any_word && !*ret_entry) {
        *ret = model;
        return 0;
    }
    int rc = models_resolve(config->models, model, &place, err);
    if (rc < 0) return rc;
    *ret = arena_str(arena, str_from(place.path));
    return ret->data ? 0 : err_set(err, -ENOMEM, "no memory for a model's path");
}

/* Says where an agent fetches a model that its machine has not. */
static void set_weights(const struct controller_config *config, const struct models_entry *entry,
                        struct str path, struct control_launch *ret)
{
    if (!entry || entry->url.len == 0) return;
    ret->weights_url = entry->url;
    ret->weights_endpoint = entry->endpoint;
    ret->weights_sha256 = entry->sha256;
    ret->weights_path = path;
    ret->weights_max = (uint64_t)config->models->max;
}

/* Adds the model, and what it must hash to. On this machine its engines share what one of them has read. */
static int add_model(struct line *l, const struct controller_config *config,
                     const struct service_section *s, const struct pool_section *p,
                     struct control_launch *ret, struct err *err)
{
    const struct models_entry *entry;
    struct str path;
    int rc = find_model(config, s->model, false, l->arena, &path, &entry, err);
    if (rc < 0) return err_prefix(err, rc, "service %s", s->name.data);
    set_weights(config, entry, path, ret);
    add(l, STR("--model"));
    add(l, path);
    if (!entry || entry->sha256.len == 0 || s->engine_program.len > 0) return 0;
    add_flag(l, "model_sha256", entry->sha256);
    if (!str_eq(p->provider, STR("local"))) return 0;
    CLEANUP(buf_fini) struct buf stamps = { 0 };
    buf_printf(&stamps, STR_FMT "/" MODELS_STAMPS, STR_ARG(config->controller->state));
    if (stamps.rc < 0) l->rc = stamps.rc;
    add_flag(l, "model_stamps", buf_view(&stamps));
    return 0;
}

static int add_draft_model(struct line *l, const struct controller_config *config,
                           const struct service_section *s, struct err *err)
{
    const struct models_entry *entry;
    struct str path;
    if (s->engine.draft_model.len == 0) return 0;
    int rc = find_model(config, s->engine.draft_model, false, l->arena, &path, &entry, err);
    if (rc < 0) return err_prefix(err, rc, "service %s: draft_model", s->name.data);
    add_flag(l, "draft_model", path);
    return 0;
}

/* Fills the launch of an engine of another kind: its agent makes the command line (agent/engines). */
static int launch_other(const struct controller_config *config, const struct service_section *s,
                        const struct pool_section *p, struct arena *arena,
                        struct control_launch *ret, struct err *err)
{
    const struct engine_traits *traits = &engine_traits[p->engine_kind];
    bool own_program = p->engine_command.count > 0;
    bool adopted = str_eq(p->provider, STR(ADOPTED_NAME));
    if (!own_program && !traits->program && !adopted)
        return err_set(err, -EINVAL,
                       "pool " STR_FMT
                       " of service %s: engines of kind %s are only adopted: give it "
                       "provider: " ADOPTED_NAME ", or an engine_command",
                       STR_ARG(p->name), s->name.data, engine_kind_names[p->engine_kind]);
    struct line l = { arena, arena_array(arena, LAUNCH_ARGS_MAX, sizeof *l.arg), 0, 0 };
    if (!l.arg) return err_set(err, -ENOMEM, "no memory for engine flags");
    for (const char *const *t = traits->program; !own_program && t && *t; t++)
        add(&l, str_from(*t));
    add_texts(&l, &p->engine_command);
    const struct models_entry *entry;
    struct str model, of_service, tokenizer = p->tokenizer;
    int rc = find_model(config, s->model, true, arena, &of_service, &entry, err);
    if (rc == 0)
        rc = find_model(config, p->model.len > 0 ? p->model : s->model, true, arena, &model, &entry,
                        err);
    const struct models_entry *of_tokenizer;
    if (rc == 0 && p->tokenizer.len > 0)
        rc = find_model(config, p->tokenizer, true, arena, &tokenizer, &of_tokenizer, err);
    if (rc < 0) return err_prefix(err, rc, "service %s", s->name.data);
    bool gguf = str_ends(of_service, STR(".gguf"));
    *ret = (struct control_launch){
        .kind = (enum engine_kind)p->engine_kind,
        .engine_args = l.arg,
        .engine_arg_count = (uint32_t)l.count,
        .engine_flags = p->engine_flags.items,
        .engine_flag_count = (uint32_t)p->engine_flags.count,
        .model = model,
        .served_name = s->name,
        .device = p->device,
        .tokenizer = tokenizer.len > 0 ? tokenizer
                     : gguf            ? of_service
                                       : (struct str){ 0 },
        .context_tokens = (uint32_t)p->context,
        .seqs_max = (uint32_t)p->max_num_seqs,
        .kv_events = p->kv_events,
        .tunnel = p->tunnel,
    };
    set_weights(config, entry, model, ret);
    return 0;
}

int setup_launch(const struct controller_config *config, const struct service_section *s,
                 const struct pool_section *p, struct str program, struct arena *arena,
                 struct control_launch *ret, struct err *err)
{
    if (!engine_traits[p->engine_kind].serves_itself)
        return launch_other(config, s, p, arena, ret, err);
    struct line l = { arena, arena_array(arena, LAUNCH_ARGS_MAX, sizeof *l.arg), 0, 0 };
    if (!l.arg) return err_set(err, -ENOMEM, "no memory for engine flags");
    bool other = s->engine_program.len > 0;
    add(&l, other ? s->engine_program : program);
    if (!other) add(&l, STR("engine"));
    if (config->whole) add_shared(&l, config->whole);
    struct control_launch launch = { .kind = ENGINE_MUSTER, .tunnel = p->tunnel };
    int rc = add_model(&l, config, s, p, &launch, err);
    if (rc < 0) return rc;
    add(&l, STR("--served-model-name"));
    add(&l, s->name);
    if (!other) {
        add_slo(&l, "slo_ttft", s->slo_ttft_us);
        add_slo(&l, "slo_tpot", s->slo_tpot_us);
    }
    for (size_t i = 0; i < setup_engine_policy_count; i++) {
        struct str name = setup_policy_name(s, &setup_engine_policies[i]);
        if (name.len > 0) add_flag(&l, setup_engine_policies[i].kind, name);
    }
    rc = add_draft_model(&l, config, s, err);
    if (rc < 0) return rc;
    add_texts(&l, &s->engine_flags);
    add_texts(&l, &p->engine_flags);
    if (l.rc < 0) return err_set(err, l.rc, "no memory for engine flags");
    if (l.count > LAUNCH_ARGS_MAX)
        return err_set(err, -E2BIG, "service %s: more than %d engine arguments", s->name.data,
                       LAUNCH_ARGS_MAX);
    launch.engine_args = l.arg;
    launch.engine_arg_count = (uint32_t)l.count;
    launch.tls_certificate = last_value(&l, "--tls-certificate");
    launch.tls_key = last_value(&l, "--tls-key");
    *ret = launch;
    return 0;
}

/* Refuses a script of an offer that is not spot, and an outage without a zone: both would do nothing. */
static int check_market(const struct offer_section *o, struct err *err)
{
    bool scripted = o->spot_life_us > 0 || o->spot_outage_us > 0 || o->spot_prices.count > 0;
    if (scripted && !o->spot)
        return err_set(err, -EINVAL,
                       "local offer " STR_FMT ": spot_life, spot_outage and spot_prices need "
                       "spot: true",
                       STR_ARG(o->name));
    if (o->spot_outage_us > 0 && o->zone.len == 0)
        return err_set(err, -EINVAL, "local offer " STR_FMT ": spot_outage needs a zone",
                       STR_ARG(o->name));
    return 0;
}

static int fill_market(const struct offer_section *from, struct local_offer *ret, struct err *err)
{
    int rc = check_market(from, err);
    if (rc < 0) return rc;
    ret->zone = from->zone;
    ret->spot = from->spot;
    ret->spot_life_us = from->spot_life_us;
    ret->spot_notice_us = from->spot_notice_us;
    ret->spot_outage_us = from->spot_outage_us;
    ret->spot_step_us = from->spot_step_us;
    for (size_t k = 0; k < from->spot_prices.count; k++) {
        struct str text = from->spot_prices.items[k];
        double price;
        if (str_to_f64(text, &price) < 0 || !(price >= 0 && price <= PRICE_MAX))
            return err_set(err, -EINVAL,
                           "local offer " STR_FMT ": spot_prices: '" STR_FMT
                           "' is no price; want dollars an hour from 0 to %g",
                           STR_ARG(from->name), STR_ARG(text), PRICE_MAX);
        ret->spot_price[ret->spot_price_count++] = price;
    }
    return 0;
}

/* Keys of tenants, tokens and of whether the service is closed; also where they were set aside. */
static const char *const secret_keys[] = { "tenant/",       "token/",       "keys",
                                           "aside/tenant/", "aside/token/", "aside/keys" };

static int open_kube_store(const struct controller_config *config, const char *const *environment,
                           struct store **ret, struct err *err)
{
    const struct controller_section *s = config->controller;
    const struct kube_section *kube = config->kube;
    const struct store_kube_config c = {
        .url = s->store,
        .fleet = s->store_fleet,
        .ns = kube ? kube->namespace : (struct str){ 0 },
        .kubeconfig = kube ? kube->kubeconfig : (struct str){ 0 },
        .context = kube ? kube->context : (struct str){ 0 },
        .environ = environment,
        .secret = secret_keys,
        .secret_count = COUNT_OF(secret_keys),
        .timeout_us = s->store_timeout_us,
    };
    return store_kube_open(&c, ret, err);
}

/* Half a term at most: a leader that comes back after an outage looks before others stop waiting for it. */
static int64_t store_again_us(int64_t term_us)
{
    return min_i64(STORE_AGAIN_US_MAX, term_us / 2);
}

int setup_shared_store(const struct controller_config *config, const char *const *environment,
                       struct store **ret, struct err *err)
{
    const struct controller_section *s = config->controller;
    if (store_kube_is_named(s->store)) return open_kube_store(config, environment, ret, err);
    const struct store_redis_config redis = { .url = s->store,
                                              .password_file = s->store_password_file,
                                              .fleet = s->store_fleet,
                                              .ca = s->store_ca,
                                              .certificate = s->store_certificate,
                                              .key = s->store_key,
                                              .timeout_us = s->store_timeout_us,
                                              .again_us_max = store_again_us(s->leader_lease_us) };
    return store_redis_open(&redis, ret, err);
}

int setup_local(const struct local_section *local, struct arena *arena,
                const struct local_offer **ret, uint32_t *ret_count, double *ret_cores,
                struct err *err)
{
    const struct offer_section *from = local->offers.items;
    uint32_t count = (uint32_t)local->offers.count;
    struct local_offer *to = arena_array(arena, count, sizeof *to);
    if (!to) return err_set(err, -ENOMEM, "no memory for offers");
    for (uint32_t i = 0; i < count; i++) {
        to[i] = (struct local_offer){ .name = from[i].name,
                                      .share = from[i].share,
                                      .price_h = from[i].price_h,
                                      .launch_us = from[i].launch_us,
                                      .lead_us = from[i].lead_us,
                                      .seqs_max = from[i].max_num_seqs,
                                      .perf_step_s = from[i].perf_step_s,
                                      .perf_prefill_s = from[i].perf_prefill_s,
                                      .perf_decode_s = from[i].perf_decode_s,
                                      .perf_read_s = from[i].perf_read_s };
        int rc = fill_market(&from[i], &to[i], err);
        if (rc < 0) return rc;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *ret = to;
    *ret_count = count;
    *ret_cores = local->cores > 0 ? local->cores : (double)max_i64(cores, 1);
    return 0;
}

bool setup_adopts(const struct controller_config *config)
{
    for (size_t s = 0; s < config->service_count; s++) {
        const struct pool_section *pool = config->service[s].pools.items;
        for (size_t p = 0; p < config->service[s].pools.count; p++)
            if (str_eq(pool[p].provider, STR(ADOPTED_NAME))) return true;
    }
    return false;
}

/* Tells fn each name that a pool of Kubernetes gives an offer, until it fails. -EINVAL of fn is no failure: it is
 * no offer of nodes, and fill_pool says which offers there are. */
static int each_kube_offer(const struct controller_config *config,
                           int (*fn)(void *ctx, struct str name, struct err *err), void *ctx,
                           struct err *err)
{
    for (size_t s = 0; s < config->service_count; s++) {
        const struct pool_section *pool = config->service[s].pools.items;
        for (size_t p = 0; p < config->service[s].pools.count; p++) {
            if (!str_eq(pool[p].provider, STR("kubernetes"))) continue;
            for (size_t o = 0; o < pool[p].offers.count; o++) {
                int rc = fn(ctx, pool[p].offers.items[o], err);
                if (rc < 0 && rc != -EINVAL) return rc;
            }
        }
    }
    return 0;
}

static int discover_at_start(void *ctx, struct str name, struct err *err)
{
    return kube_settings_discover(ctx, name, err);
}

int setup_kube(const struct controller_config *config, struct arena *arena,
               struct kube_settings *ret, struct err *err)
{
    int rc = kube_settings_make(config->kube, arena, ret, err);
    return rc < 0 ? rc : each_kube_offer(config, discover_at_start, ret, err);
}

static int discover_later(void *ctx, struct str name, struct err *err)
{
    return kube_change_discover(ctx, name, err);
}

int setup_kube_change(const struct controller_config *config, const struct cloud *cloud,
                      struct kube_change **ret, struct err *err)
{
    CLEANUP(kube_change_freep) struct kube_change *change = NULL;
    int rc = kube_change_new(cloud, config->kube, &change, err);
    if (rc == 0) rc = each_kube_offer(config, discover_later, change, err);
    if (rc < 0) return rc;
    *ret = TAKE(change);
    return 0;
}

/* Refuses to keep instances stopped where none of the pool's offers can be. */
static int check_stops(const struct service_section *s, const struct offer *offers,
                       const struct plan_pool *pool, struct err *err)
{
    for (uint32_t k = 0; k < pool->offer_count; k++)
        if (offers[pool->offer[k]].stops) return 0;
    if (pool->keep_stopped == 0) return 0;
    return err_set(err, -EINVAL,
                   "pool %s of service %s: keep_stopped: provider %s has no offer here that can be "
                   "stopped: want one "
                   "on demand at ec2, gce, azure or nova",
                   pool->name, s->name.data, pool->provider);
}

static int fill_pool(const struct service_section *s, const struct pool_section *from,
                     const struct offer *offers, uint32_t offer_count, struct plan_pool *ret,
                     struct err *err)
{
    *ret = (struct plan_pool){ .min = (uint32_t)from->min,
                               .max = (uint32_t)from->max,
                               .keep_stopped = (uint32_t)from->keep_stopped,
                               .manual = -1,
                               .role = (enum role)from->role,
                               .priority = (enum priority)from->priority };
    must(name_copy(ret->name, sizeof ret->name, from->name) == 0);
    must(name_copy(ret->provider, sizeof ret->provider, from->provider) == 0);
    if (from->min > from->max)
        return err_set(err, -EINVAL, "pool %s of service %s: min %lld is above max %lld", ret->name,
                       s->name.data, (long long)from->min, (long long)from->max);
    for (size_t k = 0; k < from->offers.count; k++) {
        uint32_t found = PLAN_NONE;
        const char *names[PLAN_OFFERS_MAX];
        uint32_t named = 0;
        for (uint32_t o = 0; o < offer_count; o++) {
            if (!str_eq(str_from(offers[o].provider), from->provider)) continue;
            names[named++] = offers[o].name;
            if (str_eq(str_from(offers[o].name), from->offers.items[k])) found = o;
        }
        if (found == PLAN_NONE) {
            const char *near = str_nearest(from->offers.items[k], names, named);
            return err_set(err, -EINVAL,
                           "pool %s of service %s: offers: provider %s sells no '" STR_FMT
                           "'%s%s%s",
                           ret->name, s->name.data, ret->provider, STR_ARG(from->offers.items[k]),
                           near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        }
        ret->offer[ret->offer_count++] = found;
    }
    return check_stops(s, offers, ret, err);
}

/* Policies of the service itself; those of its engines are in setup_engine_policies. */
static const struct setup_policy service_policies[] = {
    { "scale", "scale", offsetof(struct service_section, scale) },
    /* Empty: the scaling policy's own. */
    { "shaper", "shaper", offsetof(struct service_section, shaper) },
    { "forecast", "forecast", offsetof(struct service_section, forecast) },
    { "mix", "mix", offsetof(struct service_section, mix) }, /* empty: none */
    { "place", "place", offsetof(struct service_section, place) },
    { "role", "role", offsetof(struct service_section, role) },    /* empty: the pools' roles */
    { "power", "power", offsetof(struct service_section, power) }, /* empty: none */
};

static int check_policy(const struct service_section *from, const struct setup_policy *policy,
                        struct err *err)
{
    char where[NAME_BYTES + 32];
    struct str name = setup_policy_name(from, policy);
    bool may_be_empty = policy->offset == offsetof(struct service_section, shaper) ||
                        policy->offset == offsetof(struct service_section, mix) ||
                        policy->offset == offsetof(struct service_section, role) ||
                        policy->offset == offsetof(struct service_section, power);
    if (name.len == 0 && may_be_empty) return 0;
    snprintf(where, sizeof where, "service %s: %s", from->name.data, policy->key);
    return policy_check(policy->kind, name, where, err);
}

double setup_power_limit_watts(const struct service_section *s)
{
    return s->power_limit_watts > 0 ? s->power_limit_watts : s->row_watts;
}

/* Refuses a limit in watts without the policy that keeps it, and the policy without a limit. */
static int check_watts(const struct service_section *from, struct err *err)
{
    bool keeps = str_eq(from->power, STR("polca")), limited = setup_power_limit_watts(from) > 0;
    if (from->power_limit_watts > 0 && from->row_watts > 0)
        return err_set(err, -EINVAL,
                       "service %s: row_watts is the former name of power_limit_watts: keep one",
                       from->name.data);
    const struct pool_section *pool = from->pools.items;
    for (size_t p = 0; p < from->pools.count && !keeps; p++)
        if (pool[p].priority == PRIORITY_LOW)
            return err_set(err, -EINVAL,
                           "pool " STR_FMT
                           " of service %s: priority: low needs power: polca, which "
                           "alone tells it apart",
                           STR_ARG(pool[p].name), from->name.data);
    if (keeps == limited) return 0;
    return err_set(err, -EINVAL, "service %s: %s", from->name.data,
                   keeps ? "power: polca needs power_limit_watts"
                         : "power_limit_watts needs power: polca");
}

static int check_rows(const struct service_section *from, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(service_policies) && rc == 0; i++)
        rc = check_policy(from, &service_policies[i], err);
    for (size_t i = 0; i < setup_engine_policy_count && rc == 0; i++)
        if (setup_policy_name(from, &setup_engine_policies[i]).len > 0)
            rc = check_policy(from, &setup_engine_policies[i], err);
    return rc < 0 ? rc : check_watts(from, err);
}

/* Sets the shaper: the named one, or the scaling policy's own, with its published numbers except where
 * the section sets others. */
static void fill_shaper(const struct service_section *from, struct plan_service *ret)
{
    bool own = from->shaper.len == 0;
    ret->shaper = scale_shape_find(own ? str_from(ret->policy->shaper) : from->shaper);
    ret->shape = own && ret->policy->shape ? *ret->policy->shape : ret->shaper->published;
    if (from->down_window_us > 0) ret->shape.down_window_s = (double)from->down_window_us / 1e6;
    ret->shape.down_step_max = (uint32_t)from->down_step_max;
    ret->shape.up_step_max = (uint32_t)from->up_step_max;
}

int setup_scaling(const struct service_section *from, struct plan_service *ret, struct err *err)
{
    int rc = check_rows(from, err);
    if (rc < 0) return rc;
    if (from->row_watts > 0)
        log_event(LOG_WARN, "setting_renamed", "service=" STR_FMT " row_watts=power_limit_watts",
                  STR_ARG(from->name));
    *ret = (struct plan_service){
        .ttft_slo_s = (double)from->slo_ttft_us / 1e6,
        .tpot_slo_s = (double)from->slo_tpot_us / 1e6,
        .refuse_late = from->overload == ROUTE_OVERLOAD_REFUSE,
        .budget_h = from->budget_h,
        .budget = { from->budget_h, from->budget_day, from->budget_month },
        .policy = scale_find(from->scale),
        .mix = mix_find(from->mix),
        .place = place_find(from->place),
        .role = role_find(from->role),
        .kv_link_bytes_s = (double)from->kv_link_bytes_s,
        .power = power_find(from->power),
        .power_limit_watts = setup_power_limit_watts(from),
        .scale = { .margin = from->margin,
                   .utilisation_max = from->utilisation_max,
                   .attainment = from->attainment,
                   .clear_s = (double)from->clear_us / 1e6,
                   .life_s = (double)from->life_us / 1e6,
                   .zero_after_s = (double)from->zero_after_us / 1e6,
                   .queue_target = from->queue_target,
                   .concurrency = from->concurrency,
                   .ongoing_target = from->ongoing_target,
                   .qps_target = from->qps_target,
                   .kv_target = from->kv_target,
                   .forecast = scale_forecast_find(from->forecast),
                   .count = (uint32_t)from->count },
    };
    fill_shaper(from, ret);
    return 0;
}

/* Checks that some pool can prefill and some pool can decode, and that engines copy KV where these are
 * different pools. */
static int check_roles(const struct plan_service *s, struct err *err)
{
    static const char *const wants[ROLE_COUNT] = {
        [ROLE_PREFILL] = "decode", [ROLE_DECODE] = "prefill"
    };
    uint32_t of[ROLE_COUNT] = { 0 };
    for (uint32_t p = 0; p < s->pool_count; p++)
        if (s->pool[p].max > 0) of[s->pool[p].role]++;
    uint32_t with_role = of[ROLE_PREFILL] + of[ROLE_DECODE];
    for (enum role only = ROLE_PREFILL; only <= ROLE_DECODE; only++)
        if (of[only] > 0 && of[only] == with_role && of[ROLE_BOTH] == 0)
            return err_set(err, -EINVAL,
                           "service %s: pools of role %s alone answer no request: add a pool of "
                           "role %s or both",
                           s->name, role_names[only], wants[only]);
    if (s->role && with_role > 0 && of[ROLE_BOTH] == 0)
        return err_set(
            err, -EINVAL,
            "service %s: role: %s has nobody to choose for: each of its pools has a role "
            "of its own",
            s->name, s->role->name);
    if (s->kv_link_bytes_s > 0 || (with_role == 0 && !s->role)) return 0;
    return err_set(
        err, -EINVAL,
        "service %s: kv_link is 0, so that its engines copy no K and V; %s%s needs them to",
        s->name, with_role > 0 ? "a pool of role prefill or decode" : "role: ",
        with_role > 0 ? "" : s->role->name);
}

static int fill_service(const struct service_section *from, const struct offer *offers,
                        uint32_t offer_count, struct plan_service *ret, struct err *err)
{
    int rc = setup_scaling(from, ret, err);
    if (rc < 0) return rc;
    ret->pool_count = (uint32_t)from->pools.count;
    ret->min = (uint32_t)from->min;
    ret->max = (uint32_t)from->max;
    must(name_copy(ret->name, sizeof ret->name, from->name) == 0);
    if (from->min > from->max)
        return err_set(err, -EINVAL, "service %s: min %lld is above max %lld", ret->name,
                       (long long)from->min, (long long)from->max);
    const struct pool_section *pools = from->pools.items;
    for (uint32_t p = 0; p < ret->pool_count; p++) {
        rc = fill_pool(from, &pools[p], offers, offer_count, &ret->pool[p], err);
        if (rc < 0) return rc;
    }
    return check_roles(ret, err);
}

int setup_services(const struct controller_config *config, const struct offer *offers,
                   uint32_t offer_count, struct str program, struct arena *arena,
                   struct control_setup *setup, struct err *err)
{
    if (config->service_count > PLAN_SERVICES_MAX)
        return err_set(err, -E2BIG, "more than %d services", PLAN_SERVICES_MAX);
    size_t count = config->service_count;
    struct plan_service *service = arena_array(arena, count, sizeof *service);
    struct control_launch(*launch)[SCALE_POOLS_MAX] = arena_array(arena, count, sizeof *launch);
    if (!service || !launch) return err_set(err, -ENOMEM, "no memory for services");
    for (size_t s = 0; s < count; s++) {
        const struct service_section *from = &config->service[s];
        const struct pool_section *pools = from->pools.items;
        int rc = fill_service(from, offers, offer_count, &service[s], err);
        for (size_t p = 0; p < from->pools.count && rc == 0; p++) {
            bool is_here = str_eq(pools[p].provider, STR("local"));
            rc = setup_launch(config, from, &pools[p], is_here ? program : STR(LAUNCH_SELF), arena,
                              &launch[s][p], err);
        }
        if (rc < 0) return rc;
    }
    setup->service = service;
    setup->service_count = (uint32_t)count;
    setup->launch = (const struct control_launch(*)[SCALE_POOLS_MAX])launch;
    return 0;
}

static const struct web_settings *settings_of(const struct controller_config *config,
                                              const struct web_settings *web, struct str provider)
{
    for (size_t k = 0; k < config->cloud_count; k++)
        if (str_eq(web[k].name, provider) && web[k].kind->user_data_bytes > 0) return &web[k];
    return NULL;
}

/* An instance's names have as many bytes as this one's. */
static int write_user_data(const struct controller_config *config, const struct web_settings *web,
                           const struct control_setup *setup, uint32_t s, uint32_t p,
                           struct err *err)
{
    CLEANUP(buf_fini) struct buf token = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct pool_section *pool = config->service[s].pools.items;
    struct launch_spec spec;
    control_launch_spec(setup, &setup->launch[s][p], &spec);
    spec.instance = STR("i-000000000000");
    spec.service = config->service[s].name;
    spec.pool = pool[p].name;
    spec.offer = pool[p].offers.items[0];
    if (spec.controller_host.len == 0) spec.controller_host = config->controller->agents_reach;
    int rc = join_token_print(STR("any"), spec.instance, &token);
    if (rc == 0) rc = web_user_data_write(web, &spec, buf_view(&token), &out, err);
    return rc < 0 ? err_prefix(err, rc, "services: " STR_FMT ": pool " STR_FMT,
                               STR_ARG(spec.service), STR_ARG(spec.pool))
                  : 0;
}

int setup_user_data(const struct controller_config *config, const struct web_settings *web,
                    const struct control_setup *setup, struct err *err)
{
    int rc = 0;
    for (uint32_t s = 0; s < config->service_count; s++) {
        const struct pool_section *pool = config->service[s].pools.items;
        for (uint32_t p = 0; p < config->service[s].pools.count && rc == 0; p++) {
            const struct web_settings *of = settings_of(config, web, pool[p].provider);
            if (of) rc = write_user_data(config, of, setup, s, p, err);
        }
    }
    return rc;
}
